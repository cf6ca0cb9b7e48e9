// Browsers refuse to start a Worker on a page that was opened from a folder. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.receive = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.started = new Promise((resolve) => (frame.onload = resolve));
      this.frame = frame;
      const script = document.createElement("script");
      script.src = url;
      frame.srcdoc = `<script>postMessage = (data) => frameElement.receive(data)</script>${script.outerHTML}`;
      document.body.append(frame);
    }
    postMessage(data) {
      this.started.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
