"""The catalogue: name -> composition of parts. A new method is one file in `parts/` and one entry here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from fairsilo.config import fields_of
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.data import TOKEN
from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods.names import unknown
from fairsilo.methods.parts.amplitude_norm import AmplitudeNorm
from fairsilo.methods.parts.clustering import Clustering
from fairsilo.methods.parts.conflict_projection import ConflictProjection
from fairsilo.methods.parts.consistency_mask import ConsistencyMask
from fairsilo.methods.parts.control_variates import ControlVariates
from fairsilo.methods.parts.distance_weights import DistanceWeights
from fairsilo.methods.parts.domain_adapters import DomainAdapters
from fairsilo.methods.parts.dynamic_regularizer import DynamicRegularizer
from fairsilo.methods.parts.entropy_steps import EntropySteps
from fairsilo.methods.parts.fairness_aware import FairnessAware
from fairsilo.methods.parts.feature_alignment import FeatureAlignment
from fairsilo.methods.parts.fine_tuning import FineTuning
from fairsilo.methods.parts.fixed_head import FixedHead
from fairsilo.methods.parts.frequency_episodes import FrequencyEpisodes
from fairsilo.methods.parts.generalization_adjustment import GeneralizationAdjustment
from fairsilo.methods.parts.gradient_agreement import GradientAgreement
from fairsilo.methods.parts.group_prompts import GroupPrompts
from fairsilo.methods.parts.group_weights import GroupWeights
from fairsilo.methods.parts.head_then_body import HeadThenBody
from fairsilo.methods.parts.image_adapter import ImageAdapter
from fairsilo.methods.parts.local_head import LocalHead
from fairsilo.methods.parts.local_norms import LocalNorms
from fairsilo.methods.parts.low_rank import LowRank
from fairsilo.methods.parts.mean_mixing import MeanMixing
from fairsilo.methods.parts.median_screen import MedianScreen
from fairsilo.methods.parts.meta_learning import MetaLearning
from fairsilo.methods.parts.minimax_weights import MinimaxWeights
from fairsilo.methods.parts.model_contrast import ModelContrast
from fairsilo.methods.parts.momentum_start import MomentumStart
from fairsilo.methods.parts.moreau_envelope import MoreauEnvelope
from fairsilo.methods.parts.multi_task import MultiTask
from fairsilo.methods.parts.no_sharing import NoSharing
from fairsilo.methods.parts.noised_updates import NoisedUpdates
from fairsilo.methods.parts.norm_bound import NormBound
from fairsilo.methods.parts.normalized_averaging import NormalizedAveraging
from fairsilo.methods.parts.offsite import Offsite
from fairsilo.methods.parts.own_statistics import OwnStatistics
from fairsilo.methods.parts.personal_model import PersonalModel
from fairsilo.methods.parts.pooled import Pooled
from fairsilo.methods.parts.private_steps import PrivateSteps
from fairsilo.methods.parts.prompt_context import PromptContext
from fairsilo.methods.parts.prototype_contrast import PrototypeContrast
from fairsilo.methods.parts.prototype_pull import PrototypePull
from fairsilo.methods.parts.prototypes import Prototypes
from fairsilo.methods.parts.proximal import Proximal
from fairsilo.methods.parts.q_fair import QFair
from fairsilo.methods.parts.routed_kernels import RoutedKernels
from fairsilo.methods.parts.secure_aggregation import SecureAggregation
from fairsilo.methods.parts.server_optimizer import ServerOptimizer
from fairsilo.methods.parts.server_tuning import ServerTuning
from fairsilo.methods.parts.sharpness_aware import SharpnessAware
from fairsilo.methods.parts.tilted_weights import TiltedWeights
from fairsilo.methods.parts.trajectory import Trajectory
from fairsilo.methods.parts.two_heads import TwoHeads
from fairsilo.methods.parts.visual_prompts import VisualPrompts
from fairsilo.methods.parts.zero_shot import ZeroShot


@dataclass(frozen=True)
class Entry:
    """What users see of a method; its settings are the fields of its parts."""

    name: str
    title: str
    idea: str
    parts: tuple[type[Part], ...] = ()
    paper: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # where they differ from the parts' own defaults
    model: str = ""  # the network it is built around; by default any

    @property
    def known(self) -> set[str]:
        """The names of its settings."""
        return {item["name"] for part in self.parts for item in fields_of(part)}

    def make(self, **settings: Any) -> Method:
        """The method, each setting given to every part that has it."""
        chosen = {**self.settings, **settings}
        known = self.known
        for key in chosen:
            if key not in known:
                hint = nearest(key, known) if known else "; it has none"
                raise FairsiloError(f"{self.name} has no setting {key!r}{hint}")
        parts = []
        for part in self.parts:
            own = {item.name for item in dataclasses.fields(part)}
            parts.append(part(**{key: value for key, value in chosen.items() if key in own}))
        text = ", ".join(f"{key}={value}" for key, value in settings.items())
        return Method(tuple(parts), f"{self.name}({text})" if text else self.name)

    @staticmethod
    def _style(method: Method) -> tuple[str, ...]:
        """What is sent only where synthetic images are made with it."""
        made = any(part.needs & {"synthetic-images", "server-data"} for part in method.parts)
        return (f"with data.synthetic=diffusion:MODEL and ;learn=STEPS or ;tokens=FOLDER: {TOKEN}",) if made else ()

    def _words(self) -> dict[str, None]:
        """What is sent under any settings, each thing once."""
        return dict.fromkeys(one.words for part in self.parts for one in part.about.sends if one.words)

    def describe(self) -> dict[str, Any]:
        """Everything about the method, from its parts, for tables, `--json` and the documentation."""
        method = self.make()
        return {
            "name": self.name,
            "title": self.title,
            "idea": self.idea,
            "paper": self.paper or next((part.about.paper for part in self.parts), ""),
            "parts": [part.name for part in self.parts],
            "formulas": [part.about.formula for part in self.parts if part.about.formula],
            "settings": [
                {**item, "part": part.name, "default": self.settings.get(item["name"], item["default"])}
                for part in self.parts
                for item in fields_of(part)
            ],
            "sends": ["its model and its number of training samples", *self._words(), *self._style(method)],
            "keeps": list(method.keeps),
            "results_about": method.results,
            "model": self.model,
            "individual_updates": method.individual_updates,
            "server_sees": method.server_sees,
            "recorded": not method.doing("made-steps"),  # on a GPU its steps are replayed
        }


ENTRIES = (
    Entry(
        "fedavg",
        "FedAvg",
        "Local training, then the mean of the models, weighted by samples.",
        paper="McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017",
    ),
    Entry("fedprox", "FedProx", "A pull towards the received model during local training.", (Proximal,)),
    Entry("scaffold", "SCAFFOLD", "Control variates cancel the silos' drift.", (ControlVariates,)),
    Entry("feddyn", "FedDyn", "A linear term remembers each silo's past pulls.", (DynamicRegularizer,)),
    Entry("fednova", "FedNova", "Updates are divided by the length of their local path.", (NormalizedAveraging,)),
    Entry("moon", "MOON", "Features near the received model's, far from the silo's earlier ones.", (ModelContrast,)),
    Entry(
        "fedproc",
        "FedProc",
        "Features drawn to their class's prototype, at first with all the weight.",
        (Prototypes, PrototypeContrast),
        paper=PrototypeContrast.about.paper,
    ),
    Entry(
        "fedproto",
        "FedProto",
        "Features pulled to their class's prototype.",
        (Prototypes, PrototypePull),
        paper=PrototypePull.about.paper,
    ),
    Entry(
        "fedavgm",
        "FedAvgM",
        "Momentum on the server.",
        (ServerOptimizer,),
        paper="Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution, 2019",
        settings={"rule": "momentum", "server_lr": 1.0},
    ),
    Entry("fedadam", "FedAdam", "Adam on the server.", (ServerOptimizer,), settings={"rule": "adam"}),
    Entry("fedyogi", "FedYogi", "Yogi on the server.", (ServerOptimizer,), settings={"rule": "yogi"}),
    Entry("afl", "AFL", "Weights climb towards the silos with the highest loss.", (MinimaxWeights,)),
    Entry("q-ffl", "q-FFL", "Silos with a higher loss move the model more.", (QFair,)),
    Entry("term", "TERM", "Weights grow exponentially with a silo's loss.", (TiltedWeights,)),
    Entry("fedfv", "FedFV", "Conflicting updates are projected off one another.", (ConflictProjection,)),
    Entry("ga", "GA", "Weights follow the generalisation gaps.", (GeneralizationAdjustment,)),
    Entry("faa", "FAA", "Weights that make all generalisation gaps equal, to first order.", (FairnessAware,)),
    Entry("grace-server", "GRACE (server)", "Weights favour updates that agree with the others.", (GradientAgreement,)),
    Entry(
        "bgp",
        "BGP",
        "Meta-learning whose second step aligns features with the received model's.",
        (MetaLearning, FeatureAlignment),
        paper=FeatureAlignment.about.paper,
        settings={"batches": "two"},
    ),
    Entry("only-ml", "BGP, only ML", "BGP without the alignment.", (MetaLearning,), settings={"batches": "two"}),
    Entry("only-da", "BGP, only DA", "BGP without the meta-learning.", (FeatureAlignment,)),
    Entry(
        "fft-gp",
        "FFT-GP",
        "FAA on the server, BGP at the silos.",
        (FairnessAware, MetaLearning, FeatureAlignment),
        settings={"batches": "two"},
    ),
    Entry(
        "grace-client",
        "GRACE (client)",
        "Meta-learning with alignment, on the halves of a batch.",
        (MetaLearning, FeatureAlignment),
        paper=GradientAgreement.about.paper,
        settings={"align_weight": 0.1},
    ),
    Entry(
        "grace",
        "GRACE",
        "Weights by agreement on the server, meta-learning with alignment at the silos.",
        (GradientAgreement, MetaLearning, FeatureAlignment),
        settings={"align_weight": 0.1},
    ),
    Entry("fphl", "FPHL", "Only consistent changes of a parameter count.", (ConsistencyMask,)),
    Entry("fael", "FAEL", "Weights follow the length of the updates.", (DistanceWeights,)),
    Entry(
        "fedheal",
        "FedHEAL",
        "Consistent changes only, and weights that follow their length.",
        (ConsistencyMask, DistanceWeights),
    ),
    Entry(
        "harmofl",
        "HarmoFL",
        "Images with the federation's mean amplitude, and flat minima.",
        (AmplitudeNorm, SharpnessAware),
    ),
    Entry("elcfs", "ELCFS", "Episodes: a step must also help on images in another silo's style.", (FrequencyEpisodes,)),
    Entry("fedsam", "FedSAM", "Gradients taken at the worst point of a small ball.", (SharpnessAware,)),
    Entry("fedmix", "FedMix", "Mixup with averaged samples of all silos.", (MeanMixing,)),
    Entry("ditto", "Ditto", "A personal model per silo, pulled to the shared one.", (PersonalModel,)),
    Entry("per-fedavg", "Per-FedAvg", "Meta-learning, first order: a model that adapts in a step.", (MetaLearning,)),
    Entry("pfedme", "pFedMe", "A personal model trains, and the shared one steps towards it.", (MoreauEnvelope,)),
    Entry("fedper", "FedPer", "The head stays with its silo.", (LocalHead,)),
    Entry(
        "fedrep",
        "FedRep",
        "The head stays with its silo; head and body train in turn.",
        (LocalHead, HeadThenBody),
        paper=HeadThenBody.about.paper,
    ),
    Entry(
        "fedbabu",
        "FedBABU",
        "Only the body trains; each silo fine-tunes the result.",
        (FixedHead, FineTuning),
        settings={"finetune_epochs": 1},
    ),
    Entry("fedbn", "FedBN", "Batch normalisation stays with its silo.", (LocalNorms,)),
    Entry("fedrod", "FedRoD", "A balanced shared head, and a second one for the silo's own classes.", (TwoHeads,)),
    Entry("fedmtl", "FedMTL", "Every silo keeps its own model; their mean serves the others.", (MultiTask,)),
    Entry("local", "Local", "Every silo trains alone.", (NoSharing,)),
    Entry("fine-tune", "Fine-tuning", "Each silo fine-tunes the global model at home.", (FineTuning,)),
    Entry(
        "iop-fl",
        "IOP-FL",
        "Inside, a running mean of local models; outside, all of them mixed image by image.",
        (Trajectory, RoutedKernels),
    ),
    Entry(
        "clip-zero-shot",
        "CLIP, zero-shot",
        "Classes by the cosine with their prompts; no training.",
        (ZeroShot,),
        model="tiny-clip",
    ),
    Entry(
        "fedclip",
        "FedCLIP",
        "CLIP is frozen; an adapter that weighs image features is trained.",
        (ImageAdapter,),
        model="tiny-clip",
    ),
    Entry(
        "promptfl",
        "PromptFL",
        "CLIP is frozen; context vectors before class names are trained.",
        (PromptContext,),
        model="tiny-clip",
    ),
    Entry(
        "fedlora",
        "FedLoRA",
        "CLIP is frozen; low-rank changes of its image encoder are trained.",
        (LowRank,),
        model="tiny-clip",
    ),
    Entry(
        "fedclip-ft",
        "FedCLIP-ft",
        "FedCLIP, and after the last round the server fine-tunes the adapter on data of its own.",
        (ImageAdapter, ServerTuning),
        settings={"tuning": "end"},
        model="tiny-clip",
    ),
    Entry(
        "clip-adapter",
        "CLIP adapter, central",
        "One wide adapter (adapter_width: as many as domains), trained on all data in one place.",
        (Pooled, ImageAdapter),
        paper="CLIP_A of Wang et al., Enhancing Foundation Models with Federated Domain Knowledge Infusion, ICML 2025",
        settings={"adapter_width": 4, "clip_loss": "classes"},
        model="tiny-clip",
    ),
    Entry(
        "clip-lora",
        "CLIP LoRA, central",
        "Low-rank changes of CLIP's image encoder, trained on all data in one place.",
        (Pooled, LowRank),
        paper=LowRank.about.paper,
        model="tiny-clip",
    ),
    Entry(
        "clip-per-domain",
        "CLIP adapters, one per domain",
        "Each silo trains an adapter of its own, for itself.",
        (ImageAdapter, NoSharing),
        paper="CLIP_M of Wang et al., Enhancing Foundation Models with Federated Domain Knowledge Infusion, ICML 2025",
        settings={"clip_loss": "classes"},
        model="tiny-clip",
    ),
    Entry(
        "fedot",
        "FedOT",
        "Silos train the ends of CLIP's image encoder through an emulator of its middle.",
        (Offsite,),
        model="tiny-clip",
    ),
    Entry(
        "fedot-ft",
        "FedOT-ft",
        "FedOT, and after the last round the server fine-tunes the ends on data of its own.",
        (Offsite, ServerTuning),
        settings={"tuning": "end"},
        model="tiny-clip",
    ),
    Entry(
        "vit-central",
        "ViT, central",
        "A whole ViT trained on all data in one place.",
        (Pooled,),
        model="tiny-vit",
    ),
    Entry(
        "fedag",
        "FedAG",
        "CLIP at the server, an adapter per silo, which learns from the silos' models on synthetic images.",
        (MomentumStart, DomainAdapters),
        model="tiny-vit",
    ),
    Entry(
        "fedgc",
        "FedGC",
        "FedGCR's prompts and contrasts, with FedAvg's weights.",
        (GroupPrompts, Clustering),
        model="tiny-vit",
    ),
    Entry(
        "fedgr",
        "FedGR",
        "VPT, with weights by the losses of silos and of their clusters.",
        (VisualPrompts, Clustering, GroupWeights),
        paper=GroupWeights.about.paper,
        model="tiny-vit",
    ),
    Entry(
        "fedgr-server",
        "FedGR, server's half",
        "Weights by the losses of silos and of their clusters, with any network.",
        (Clustering, GroupWeights),
        paper=GroupWeights.about.paper,
    ),
    Entry(
        "fedgcr",
        "FedGCR",
        "Prompts customised per image, clusters of silos, and weights by the losses of both.",
        (GroupPrompts, Clustering, GroupWeights),
        model="tiny-vit",
    ),
    Entry(
        "vpt",
        "VPT",
        "A ViT is frozen; prompts beside the patches and a head are trained.",
        (VisualPrompts,),
        model="tiny-vit",
    ),
    Entry("dsbn", "DSBN", "At the unseen silo, batch normalisation with its own statistics.", (OwnStatistics,)),
    Entry("tent", "Tent", "At the unseen silo, batch normalisation follows the entropy down.", (EntropySteps,)),
    Entry("fedavg-ft", "FedAvg-ft", "The server fine-tunes the mean on data of its own.", (ServerTuning,)),
    Entry(
        "fedprox-ft",
        "FedProx-ft",
        "FedProx, and the server fine-tunes the mean on data of its own.",
        (Proximal, ServerTuning),
        paper=ServerTuning.about.paper,
    ),
    Entry("norm-bound", "Norm bound", "Updates much longer than the others are cut.", (NormBound,)),
    Entry("dp-updates", "DP-FedAvg", "Updates are cut and blurred: a silo is private as a whole.", (NoisedUpdates,)),
    Entry("dp-sgd", "DP-SGD", "Steps are blurred: every sample is private.", (PrivateSteps,)),
    Entry(
        "secure-aggregation",
        "Secure aggregation",
        "Updates travel under masks: the server sees their sum alone.",
        (SecureAggregation,),
    ),
    Entry("median-screen", "Median screening", "Updates far from the median of all do not count.", (MedianScreen,)),
)
CATALOGUE = {entry.name: entry for entry in ENTRIES}


def entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise unknown(name)
    return CATALOGUE[name]


def model_for(text: str) -> str:
    """The pretrained network that a method is built around; empty where it trains any network."""
    names = [piece.strip().partition("(")[0].partition(".")[0] for piece in text.split("|")]
    around = [CATALOGUE[name].model for name in names if name in CATALOGUE and CATALOGUE[name].model]
    return around[0] if around else ""


def having(setting: str) -> list[str]:
    """The methods of the catalogue that have a setting of this name."""
    return [name for name, one in CATALOGUE.items() if setting in one.known]
