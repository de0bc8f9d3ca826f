"""What helps against an error, where its sentence does not say so itself."""

from __future__ import annotations

# a sentence that begins so, or has such a word, names what is right: nothing can be added
SAYS_IT = (
    r"^(give|name|say|on a cluster say) |\bmust (be|have|hold|begin|lie)\b|, but by \{|, not one of |"
    r"\btakes at most\b|, not rows$|, or 1 \(grey\)$|^trials and jobs must|^one table at a time\b"
)
AS_IT_SAYS = "what the sentence says"

SPELLING = "look at the spelling; where a name is near, the sentence offers it"
ANEW = "make it anew: a run in another folder; of a comparison, delete that run's folder and give the command again"
PRIVACY = "see [privacy](privacy.md)"
CHECK = "`fairsilo datasets check PATH` lists all that is wrong with files"
HUB_COPY = "fetch the files again: a copy was cut off, or is of something else"
SEE_LOG = "the run's log says why each silo failed; then `fairsilo resume`"
KEEP = "run it again with `evaluate.keep_local=true`"

# instead of what stands behind the cut, where that is no help by itself
INSTEAD = {
    r"^train\.lr_groups names": "name a group or a part of a tensor's name, from the lists in the sentence",
    r"\bhas no part \{label\}": "name one of the parts that the sentence lists",
    r"^data\.augment is \{text\}; \{rule\}": "`fairsilo settings augment` says how changes are written",
    r"\blam \* \{key\} is": "take less than 2: above, the steps diverge",
    r"^the local models of round .* were not kept": "take one of the rounds between these two",
    r"^unknown model": SPELLING + "; `fairsilo models` lists them, and `clip:PATH` and its like take a checkpoint",
    r"\bis the same for all methods of a comparison\b": "set it for all: `fairsilo compare ... KEY=VALUE`",
    r"\bhas no run that counts\b": ANEW,
    r"\bis measured by \{metric\}": "give runs that are measured by a share, such as accuracy",
    r"^two silos are called\b": "give each silo a name of its own",
    r"^all but the server is well\b": "start it: `fairsilo federation start` at the server",
    r"^this estimator tells classes by\b": (
        "give classes of the kind that it tells, or choose it: `estimator(names=True)`"
    ),
    r"\bmade the global model not finite\b": "run it anew with a lower `train.lr`, or with `train.clip=1`; resumed, it "
    "would come to the same",
    r"^\{folder\} holds \{format\} files, which need no fairsilo": "load it as its README.md says",
}

# pattern -> what to do; the first that fits
KNOWN = {
    # ------------------------------------------------------------------------------------------ settings and methods
    r"\bis given twice\b": "give it once",
    r"^the figure \{name\} is asked for twice|, which has \{name\} twice|^a method is named twice": "name it once",
    r"\bcannot do without \{other\}": "leave both in, or both out",
    r"\bputs a module beside the network\b": "return the layers from a `torch.nn.Module` of your own",
    r"\band some tensors never leave their silo\b": "take a method that shares all tensors",
    r"\bwhose attribute `head` is linear\b": "let the network's last layer be a `torch.nn.Linear` called `head`",
    r"\btrains the body of the network, and all of it is frozen\b": "take a network that trains its body, such as "
    "`model=small-cnn`",
    r"\bneeds synthetic images for every silo\b": "set `data.synthetic`, such as `data.synthetic=glyphs`",
    r"\bblocks at each end leave nothing\b": "set fewer blocks at each end, or take a deeper model",
    r"^\{name\}: the emulator has \{kept\} blocks\b": "let it keep fewer blocks than lie between the ends",
    r"\bneeds sums in which silos count alike\b": "set `train.weighting=auto`",
    r"\bno silo sent\b": SEE_LOG,
    r"\btest data, and nothing may be chosen by\b": "leave `evaluate.selection` at its default",
    # -------------------------------------------------------------------------------------------------------- privacy
    r"\bepsilon would be\b": "fewer rounds, more noise, or a larger budget; " + PRIVACY,
    r"\btoo large to be masked\b": "set `train.clip=1`, or lower `train.lr`",
    r"\btoo few silos\b|\bsecure sums need\b": "see that enough silos take part, then `fairsilo resume`; " + PRIVACY,
    r"\bkeys? (are|of|than)|list of (updates|silos)|the shares of|share of a key|^the step ": "a message is "
    "not what the protocol allows, so nothing is shown; " + PRIVACY,
    # --------------------------------------------------------------------------------------------------------- images
    r"^image .* has no mask\b|^mask .* has no image\b": "add the missing file, or remove the one without a partner",
    r"\bhas no image with a mask\b": "put masks beside the images, as [your own data](your-own-data.md#masks) says",
    r"^the masks \{files\} of one image\b": "make them one size, or remove the wrong one",
    r"^volume .* has no mask\b": "add the mask, or remove the volume",
    r"\bno NIfTI volume with a slice\b": "give a folder with volumes and their masks",
    r"\bno image in a folder of a class\b|\bholds no image\b|\bno image for an index\b": (
        "put PNG, JPEG or other images there, or give another folder"
    ),
    r"\bno DICOM file\b|\bno pixels that can be read\b": "replace or remove the file; compressed pixels need the "
    "package pydicom with a decoder",
    r"\bno intact (NIfTI volume|parquet file)|is not intact JSON|is not an intact \.npz": HUB_COPY,
    r"\bcannot be packed\b": "read it as a folder or an index instead",
    r"\bdoes not fit together\b": "pack it again (`fairsilo.data.packed.write_packed`)",
    r"^pickle \{file\} (cannot be read|is damaged)": HUB_COPY,
    # ---------------------------------------------------------------------------------------------- indexes and tables
    r"\bnot valid (CSV|JSON)\b": "repair the file at the place that the sentence names",
    r"as UTF-8 text|as CSV in UTF-8": "save the file as CSV in UTF-8",
    r"\bhas no rows\b|\bnames no image\b|\bgives no rows\b": "give a file or a query with a row for each image",
    r"\bhas \{number of line\} fields\b|\banother number of fields than the header\b": "quote values that hold commas, "
    "and give every row all fields",
    r"\bhas no column \{name\}": "add the column, or rename the one that is meant",
    r"\bno column of numbers besides\b": "add columns of numbers, which the network sees",
    r"\bneeds the column label, and one of\b": "add the columns that the sentence names",
    r"\bhas two labels for one\b": "keep one of the rows",
    r"\bno SQLite file, and no package:function\b": "give the path of an SQLite file, or `package:function`",
    r"\brefuses the query\b": "repair the query as the database says",
    r"\bmust have lists x and y\b": "repair the file at the place that the sentence names",
    r"\blabel\b.*\bnumbered from 0\b|\bwhich is none of \{classes\}|\bhas the class \{label\}|"
    r"\bnot one of (0|\{known)": "correct the label, or remove the row",
    r"\bnames \{path\}, which is neither in\b": "put the file there, or correct its path",
    r"\bthe lists \{texts\}": "correct the lists, of which each image belongs into one",
    r"\bwindows of \{length\} characters\b": "let every window lie within the text",
    # -------------------------------------------------------------------------------------------- domains and silos
    r"\bat least 2 domains are needed|\bat least 2 are needed\b": "give a second domain, or set `data.held_out=-`",
    r"\basks for \{count\} domains\b": "lower the number in `data.domains`",
    r"\bheld out and has no silos that train\b": "leave that domain out of the setting, or hold out another one",
    r"\bof \{given\} name their own\b": "leave out `data.dif`",
    r"\basks for \{wanted\} of\b": "ask for fewer samples",
    r"\bleaves silo .* without a training sample\b": "lower `data.dif`, or take fewer silos",
    r"\bexactly one of name, folder, index and packed\b": "give one of them",
    r"^evaluate\.groups names \{column\}, \{missing\}": "name a column that the data have, or leave it out",
    r"^say where the prepared data\b": "give `--root FOLDER`",
    r"\bcannot be had from the Hugging Face Hub\b": "look at the name and the network, or give the path of a copy",
    # ------------------------------------------------------------------------------------------------ synthetic images
    r"^data\.synthetic: learn must\b": "give numbers in these bounds",
    r"^data\.synthetic has \{option\}, and": "write the option as `name=NUMBER`",
    r"\bdiffusion model \{model\} cannot be loaded\b": "give the folder of a model that `diffusers` has saved",
    r"\bthe word \{word\} is none of\b": "take words of the same model, or learn them with `learn=STEPS`",
    r"\bbuilt without FreeType\b": "install Pillow anew from its wheel (`pip install --force-reinstall pillow`)",
    r"\bsilos learn words of a model that is a folder\b": "give the folder of the model, or `diffusion:tiny`",
    r"\bdomains that are held out\b": "give the server images of another domain",
    r"\bsynthetic images for other data\b": "give the data that the run had",
    r"\blearn the words for their styles in a run\b": "leave out `learn`, or start a run",
    r"\bno textual inversion of the domain\b|\bsynthetic folder .* has no image of\b|\bno image of (the class|the "
    r"federation's class)": "add what is missing there",
    r"\bdraws the digits of the embedded federation\b": "take `data.synthetic=folder:PATH`, or another source",
    r"\bword\b.*\bstyle\b": SEE_LOG,
    # --------------------------------------------------------------------------------------------------------- models
    r"\btokenizer of\b": "put the tokenizer's files (`tokenizer.json`, `vocab.json`, ...) beside the weights",
    r"\bof the backbone\b|\bnot the tensors of\b": "fetch the checkpoint again, with the `config.json` that "
    "belongs to it",
    r"\btext encoder beside\b": "let it return a row for each text",
    r"^the prompt \{text\}": "shorten the template, the name of the class or the learned context",
    r"^the template \{template\} has no": "write `{}` where the name of the class goes",
    r"^the images have \{channels\} channels\b": "give RGB or grey images, or take another model",
    r"^model \{model\} raised\b": "repair the network's `forward` for inputs of that shape",
    # ----------------------------------------------------------------------------------------------------------- tasks
    r"\bdata\.augment has grayscale\b": "leave grayscale out",
    r"\bis for tasks of fairsilo's own\b": "leave it out: a task of your own has no settings here",
    r"\bclass_weights=\{given\} is for data with classes\b": "leave `task.class_weights` out",
    r"\bclass_weights=inverse needs\b": "give the weights by name of the class",
    # ---------------------------------------------------------------------------------------------------- run folders
    r"^(?!pickle).*\bis damaged\b": ANEW,
    r"\{path\} cannot be read: \{reason\}": "look at the path, at who may read it, and at whether it was copied "
    "completely",
    r"\bserver has not run\b|\bserver of \{folder\} does not run\b": "`fairsilo federation start` at the server",
    r"\b(does not exist|is no folder|is in none of|is not in)\b": "look at the path: it is taken from the folder that "
    "you are in, or as the sentence says",
    r"\bis no run folder\b|\bneeds the folder of a run\b|\bholds neither a run nor\b": "give the folder that a run "
    "wrote; `fairsilo runs` lists them",
    r"\bno training samples?\b": "give it more samples, or lower `data.test` and `data.validation`",
    r"\bdata than its config\.yaml gives now\b": "put the data back as they were, or give them with `federation=`",
    r"\bbut not what its silos kept then\b": "start the run anew in another folder",
    r"\bwritten by an earlier version\b": "open it with the version that wrote it, or run it again",
    r"\bit was not there at the end\b": "take the global model, or another silo's",
    r"\bwas not written by\b": "give what fairsilo wrote itself",
    r"\bholds no model\b": "give a run that has finished, or a folder that `fairsilo export` wrote",
    r"\bholds more than \{largest\} GB\b": "unpack the zip by other means, and give the folder",
    r"\bgive an experiment or settings\b": "give one of them",
    # ----------------------------------------------------------------------------------- trained models and exports
    r"^the samples are \{here\}": "give samples of that shape",
    r"^samples must be arrays\b": "give an array or a tensor",
    r"\bhas no global model\b": "take a silo's own model",
    r"\bdoes not fit its network\b": "give the network that the models were trained with",
    r"\banswers otherwise in float32\b|\banswers otherwise than the run\b|\bfile of \{name\} cannot be used\b": (
        "export to `safetensors`, which holds the weights themselves"
    ),
    r"^\{measuring\} measures models on validation data\b|\bno validation samples\b": "give that silo validation "
    "samples, or set `data.validation` above 0",
    r"\bwhich is another network in\b|\bfigure looks at models as they were sent\b|\bno tensor of this model comes "
    r"back\b": "take another figure: this one has no meaning for such a method",
    r"\bno attention between silos' adapters\b": "take a run of `fedag`",
    # ----------------------------------------------------------------------------------------------------- statistics
    r"\bno held-out domain and seed with all methods\b": "finish the comparison: give its command again",
    r"\bno results on validation samples\b": "run them again with `data.validation` above 0",
    r"\bpaper\.\w*|\bpaper\.\{": "correct the table's file in `src/fairsilo/experiments`",
    # -------------------------------------------------------------------------------------------------------- figures
    r"\bneeds the local models of two silos\b": "give a run with two silos or more and `evaluate.keep_local=true`",
    r"\blie on one line\b": "take another silo or another round",
    r"\bneeds at least 4\b": "draw it of a run with more samples",
    r"\bnothing to draw for\b": "run it again with what the figure needs: `fairsilo figure list` says it",
    r"\bglobal model of a round is \{sent\}": "write one of these two",
    # --------------------------------------------------------------------------------------------------------- advice
    r"\btoo few training samples to judge\b": "give more training samples, or merge small silos",
    r"\bnothing but fedavg can be tried\b|\bno method but fedavg came to an end\b": (
        "name other methods; the reasons stand in the sentence"
    ),
    # ---------------------------------------------------------------------------------------------- the command line
    r"^--from, --size and --fit\b": "leave them out, or write `fairsilo datasets prepare NAME --from PATH`",
    # ---------------------------------------------------------------------------------------------------------- tuning
    r"\bcannot be searched\b": "leave it out of the search, and set it for all: `fairsilo tune ... KEY=VALUE`",
    r"^--search \{text\}: the first bound must|must be numbers$": "write `LOW..HIGH` with numbers, LOW the smaller one",
    # -------------------------------------------------------------------------------------------------- across machines
    r"^\{run\} is finished$": "nothing is left to do; a new run needs another name",
    r"\bruns already, as process\b": "use the one that runs, or stop it with `fairsilo federation stop`",
    r"\bnot this federation's server\b": "look at host and port in `federation.yaml`, and at who answers there",
    r"^\{host\}:\{port\} cannot be reached\b": "start the server, and let its port through the firewall",
    r"\bis no request of a site\b": "give the file that `fairsilo site join` wrote",
    r"\bneeds name, host and port\b": "add what is missing to the file",
    r"\bneeds all data in one place\b": "take another method: this one is for simulations",
    r"\bno site is there that trains\b": "start the sites (`fairsilo site start`), or wait for them",
    r"\band the run's silos of \{differs\}": "prepare that site's data as the run's: the same size and classes",
    r"\bpiece of its server's model for each silo\b": "take a method without such pieces where silos join later",
    r"^two sites have one of this name\b": "rename the silo at one of the sites",
    r"\bsilos is a list of settings\b": "write `silos:` with an entry (`- name: ...`) for each silo",
    r"^a silo needs one of \{sources\}": "give one of these sources in `site.yaml`",
    r"\bno certificate to sign with\b": "join first: `fairsilo site join`",
    # ------------------------------------------------------------------------------------------------ code of your own
    r"\bcannot be imported\b": "look at the name and at what the package itself needs; `PYTHONPATH` must lead to it",
    r"\bcannot be called with\b": "let it take these arguments",
    r"\bcannot be tried on the federation of the laws\b": "give the part a network that it can train, as the sentence "
    "says",
    r"\bcannot be the name of a package\b": "choose such a name, for example `my-weights`",
    # ------------------------------------------------------------------------------------------------------------ last
    r"not valid YAML|is not a text in UTF-8|the configuration \{|must hold settings": "write it as "
    "[settings](settings.md) are written",
    r"\bwould have no effect\b|\bwould do nothing\b|\bwould change nothing\b": "leave it out",
}
GENERAL = {
    "Settings": "`fairsilo settings NAME` says what a setting takes",
    "Methods": "`fairsilo methods NAME` says what a method needs",
    "Privacy": PRIVACY,
    "Data": f"see [your own data](your-own-data.md); {CHECK}",
    "Synthetic images": "`fairsilo settings synthetic` says what it takes",
    "Models": "`fairsilo models NAME` says what a network takes",
    "Tasks": "see [tasks](tasks.md)",
    "Training": "see [engines](engines.md)",
    "Runs": "`fairsilo runs` lists runs and says what is wrong with each",
    "Comparisons": "see [using it](using.md)",
    "Trained models and exports": "see [taking a model away](taking-it-away.md)",
    "The command line": "`--help` behind the command says what it takes",
    "Tuning": "see [tuning](tuning.md)",
    "Advice": "see [which method](advice.md)",
    "Reports and figures": "`fairsilo figure list` says what can be drawn",
    "Watching": "see [watching](watching.md)",
    "Tracking": "see [tracking](tracking.md)",
    "Across machines": "see [deployment](deployment.md)",
    "Code of your own": "see [your own](your-own.md)",
    "Tables of papers": "`fairsilo reproduce` lists the tables",
}
