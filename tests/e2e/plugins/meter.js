// A plugin that puts itself between the host and the network, and refuses requests that say so.
//
// The host hands provider options to its model client as they are, functions included, so a `fetch`
// set in the config hook sees the final body of every request of that provider.
import { appendFileSync } from "node:fs"

export default {
  id: "optchat-meter",
  async server(_input, options) {
    return {
      async config(config) {
        for (const provider of Object.values(config.provider ?? {})) {
          const inner = provider.options?.fetch ?? fetch
          provider.options = { ...provider.options, fetch: metered(inner, options.file) }
        }
      },
    }
  },
}

function metered(inner, file) {
  return async (url, init) => {
    const session = new Headers(init?.headers).get("x-session-id")
    const bytes = Buffer.byteLength(init?.body ?? "")
    appendFileSync(file, JSON.stringify({ hook: "fetch", sessionID: session, bytes }) + "\n")
    if (String(init?.body).includes("OVER BUDGET")) throw new Error("this request is over budget")
    return inner(url, init)
  }
}
