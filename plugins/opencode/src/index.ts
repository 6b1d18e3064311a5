/** The plugin as the host loads it: one object, and nothing else may be exported. */
import { server } from "./plugin.ts";

export default { id: "optchat", server };
