// Finds packages in the folder that tools/node-env made, wherever the program is.

import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.env.NODE_ENV_FOLDER}/package.json`).href;

registerHooks({
  resolve(specifier, context, next) {
    const mine = context.parentURL?.startsWith(new URL(".", import.meta.url).href);
    const bare = !/^(\.|\/|node:|file:|data:)/.test(specifier);
    return next(specifier, mine && bare ? { ...context, parentURL: folder } : context);
  },
});
