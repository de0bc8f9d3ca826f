// A browser starts no worker from a file, so search would not work in a site that is opened from a folder.
// There the worker's script runs in a hidden frame instead, and messages go to it and back.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = address;
      this.started = new Promise((resolve) => (script.onload = resolve));
      inside.document.body.append(script);
      this.inside = inside;
    }
    postMessage(data) {
      this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
