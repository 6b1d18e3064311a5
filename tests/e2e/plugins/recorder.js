// A plugin that writes down what the host gives to each hook, one JSON line each, in order.
//
// Where: the file named by OPTCHAT_RECORDER, or options.file. What it also does is asked for in the
// options, so that one file serves every test:
//   view      replace the outgoing messages by [synthetic text, last user message and what follows]
//   base      push this as a system message of every main request, and of no other
//   naive     push the base whenever messages.transform has armed it, whatever the request
//   titleWaits  hold the title's request back until the first main request has its system messages
//   mainWaits   hold the first main request back until the title's request has its system messages
//   notice    show this as a toast and write it to the host's log
//   listTools ask the host for its tools
//   throwIn   name of a hook that throws while `throwText` is in the turn's last user text
//   throwFrom throw only from this matching call on
//   abortIn   name of a hook that aborts its session under the same condition
import { appendFileSync } from "node:fs"

const state = (globalThis.__optchatRecorder ??= { instances: 0, sequence: 0, last: new Map() })

export default {
  id: "optchat-recorder",
  async server(input, options = {}) {
    const file = options.file ?? process.env.OPTCHAT_RECORDER
    const instance = ++state.instances
    const record = (hook, data) => {
      const line = { n: ++state.sequence, at: performance.now(), instance, hook, ...data }
      if (file) appendFileSync(file, JSON.stringify(line) + "\n")
    }
    const last = state.last
    const armed = new Map()
    let count = 0
    const compacting = new Set()
    const seen = signals()

    const disturb = async (hook, sessionID) => {
      if (!options.throwText || !(last.get(sessionID) ?? "").includes(options.throwText)) return
      if (options.throwIn === hook && ++count >= (options.throwFrom ?? 1)) throw new Error("recorder stops this turn in " + hook)
      if (options.abortIn === hook) {
        const answer = await input.client.session.abort({ path: { id: sessionID } })
        record("aborted", { sessionID, answer: answer.data, error: answer.error })
      }
    }

    record("init", { directory: input.directory, keys: Object.keys(input), options })
    return {
      async dispose() {
        record("dispose", {})
      },
      async event({ event }) {
        try {
          record("event", { type: event.type, properties: options.fullEvents ? event.properties : undefined })
        } catch {}
      },
      "chat.message": async (given, output) => {
        let status
        if (options.status) status = (await input.client.session.status()).data
        record("chat.message", { sessionID: given.sessionID, given, parts: output.parts, status })
        last.set(given.sessionID, textOf(output.parts))
        if (options.notice) await notice(input.client, record, options.notice)
        if (options.listTools) {
          const model = given.model ?? output.message.model
          const query = { provider: model.providerID, model: model.modelID }
          record("tool.list", { tools: (await input.client.tool.list({ query })).data })
        }
        await disturb("chat.message", given.sessionID)
      },
      "experimental.chat.messages.transform": async (_, output) => {
        const sessionID = output.messages[0]?.info.sessionID
        const users = output.messages.filter((m) => m.info.role === "user")
        last.set(sessionID, textOf(users.at(-1)?.parts ?? []))
        record("messages.transform", { sessionID, messages: options.fullMessages ? output.messages : output.messages.map((m) => m.info.id) })
        await disturb("messages.transform", sessionID)
        if (options.view) view(output.messages, sessionID, options.view)
        // Kept until the next transform instead of consumed: a retry runs only the system hook again.
        if (options.base && !compacting.delete(sessionID)) armed.set(sessionID, options.base)
        if (options.mainWaits) await seen.at("title")
      },
      "experimental.chat.system.transform": async (given, output) => {
        record("system.transform", { sessionID: given.sessionID, model: given.model?.id, keys: Object.keys(given), system: output.system.map((s) => s.slice(0, 60)) })
        await disturb("system.transform", given.sessionID)
        const main = isMain(output.system, input.directory)
        if ((main || options.naive) && armed.has(given.sessionID)) output.system.push(armed.get(given.sessionID))
        seen.mark(main ? "main" : "title")
      },
      "experimental.provider.small_model": async () => {
        record("small_model", {})
        if (options.titleWaits) await seen.at("main")
      },
      "chat.params": async (given) => {
        record("chat.params", { sessionID: given.sessionID, agent: given.agent, limit: given.model?.limit })
        await disturb("chat.params", given.agent === "title" ? undefined : given.sessionID)
      },
      "chat.headers": async (given) => {
        record("chat.headers", { sessionID: given.sessionID, agent: given.agent })
        await disturb("chat.headers", given.agent === "title" ? undefined : given.sessionID)
      },
      "tool.definition": async (given, output) => {
        record("tool.definition", { toolID: given.toolID, description: output.description.length, schema: output.jsonSchema ? JSON.stringify(output.jsonSchema).length : null })
      },
      "tool.execute.before": async (given) => record("tool.execute.before", given),
      "tool.execute.after": async (given) => record("tool.execute.after", { ...given, args: undefined }),
      "experimental.session.compacting": async (given) => {
        record("session.compacting", given)
        compacting.add(given.sessionID)
        armed.delete(given.sessionID)
      },
      "experimental.text.complete": async (given) => record("text.complete", given),
      "command.execute.before": async (given) => record("command.execute.before", given),
    }
  },
}

// Only a main request carries the host's description of the working folder: the title's and the
// compaction's system message is their agent's prompt alone.
function isMain(system, directory) {
  return system.some((text) => text.includes("<env>\n  Working directory: " + directory + "\n"))
}

async function notice(client, record, message) {
  const toast = await client.tui.showToast({ body: { message, variant: "warning" } })
  const log = await client.app.log({ body: { service: "optchat", level: "warn", message } })
  record("notice", { toast: toast.data, toastError: toast.error, log: log.data, logError: log.error })
}

function signals() {
  const waiting = new Map()
  const entry = (name) => {
    if (!waiting.has(name)) waiting.set(name, Promise.withResolvers())
    return waiting.get(name)
  }
  return { mark: (name) => entry(name).resolve(), at: (name) => entry(name).promise }
}

function textOf(parts) {
  return parts.filter((p) => p.type === "text").map((p) => p.text).join("\n")
}

// In place: assigning a new array to output.messages would have no effect.
function view(messages, sessionID, text) {
  const at = messages.findLastIndex((m) => m.info.role === "user" && m.parts.some((p) => !p.synthetic))
  if (at < 0) return
  const live = messages[at]
  const injected = { id: "prt_injected", messageID: live.info.id, sessionID, type: "text", synthetic: true, text }
  messages.splice(0, at + 1, { info: live.info, parts: [injected, ...live.parts] })
}
