// Colours the CUDA C that lab 04 writes between r''' and ''' as C. JupyterLab loads this file as it is: no build.
(() => {
  const NAME = "distlearn-cuda";
  const KERNEL = /r?('''|""")((?:(?!\1)[^])*?__(?:global|device)__(?:(?!\1)[^])*?)\1/g;
  const TOKEN = /(\/\/[^\n]*|\/\*[^]*?\*\/)|("(?:[^"\\\n]|\\.)*")|(\b\d[\w.]*)|(\b(?:__\w+__|__\w+|extern|const|void|bool|char|int|unsigned|long|float|double|if|else|for|while|do|return|break|continue|struct|true|false)\b)|(\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b)|([^\s])/g;
  const COLOURS = ["comment", "string", "number", "keyword", "builtin", "variable"];
  let shared;

  async function load(name) {
    const versions = shared[name];
    return (await versions[Object.keys(versions)[0]].get())();
  }

  async function extension() {
    const [lab, view, state] = await Promise.all(["@jupyterlab/codemirror", "@codemirror/view", "@codemirror/state"].map(load));
    const marks = COLOURS.map((kind) =>
      view.Decoration.mark({ class: `distlearn-cuda-${kind}`, attributes: { style: `color: var(--jp-mirror-editor-${kind}-color)` } }));

    function colour(editor) {
      const found = new state.RangeSetBuilder();
      for (const kernel of editor.state.doc.toString().matchAll(KERNEL)) {
        const start = kernel.index + kernel[0].indexOf(kernel[1]) + 3;
        for (const token of kernel[2].matchAll(TOKEN)) {
          const kind = token.slice(1).findIndex((text) => text !== undefined);
          found.add(start + token.index, start + token.index + token[0].length, marks[kind]);
        }
      }
      return found.finish();
    }
    const colours = view.ViewPlugin.fromClass(
      class {
        constructor(editor) { this.decorations = colour(editor); }
        update(change) { if (change.docChanged) this.decorations = colour(change.view); }
      },
      { decorations: (plugin) => plugin.decorations });
    return {
      id: `${NAME}:plugin`,
      autoStart: true,
      requires: [lab.IEditorExtensionRegistry],
      activate: (app, registry) => registry.addExtension(Object.freeze({
        name: NAME,
        factory: () => lab.EditorExtensionRegistry.createImmutableExtension(state.Prec.highest(colours)),
      })),
    };
  }

  (window._JUPYTERLAB = window._JUPYTERLAB || {})[NAME] = {
    init: (scope) => { shared = scope; },
    get: async () => { const plugin = await extension(); return () => ({ __esModule: true, default: plugin }); },
  };
})();
