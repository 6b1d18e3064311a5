/** How a tool is shown to a model; each word of it is paid for in every request. */

export interface Definition {
  description: string;
  properties: Record<string, Property>;
  required: string[];
}

export interface Property {
  type: "string" | "integer" | "boolean" | "array";
  description: string;
  items?: { type: "string" };
}

export const text = (description: string): Property => ({ type: "string", description });
export const number = (description: string): Property => ({ type: "integer", description });
export const flag = (description: string): Property => ({ type: "boolean", description });
export const list = (description: string): Property => ({
  type: "array",
  description,
  items: { type: "string" },
});
