export interface Named {
  id: string;
  name: string;
  mark: string; // tells it from another of the same name: the prefix of a key, the hostname of a gateway
}

// tellApart returns a function that gives the name of an identifier: with its mark if another has the same name, and
// the identifier if it is not among them.
export function tellApart(all: Named[]): (id: string) => string {
  const byId = new Map(all.map((n) => [n.id, n]));
  const count = new Map<string, number>();
  for (const n of byId.values()) count.set(n.name, (count.get(n.name) ?? 0) + 1);
  return (id) => {
    const n = byId.get(id);
    if (!n) return id;
    return (count.get(n.name) ?? 0) > 1 ? `${n.name} (${n.mark})` : n.name;
  };
}
