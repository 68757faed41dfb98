// What the field for the plan of a key says.
export const noPlan = 'That of its owner, or of the gateway';
export const planHint = 'Limits that each key has on its own. Those per owner are always of the owner’s plan.';
