// Package cost says what a request costs: how many units of which meters (plans.md, section 5). It does no I/O.
//
// Rules are the property "cost" of a route, at most one Rule for each meter. Program is their compiled form. A Reader
// reads one response as it passes and finds the figures that the rules name; Rule.Settle turns a Figure and the end of
// the exchange into units. A route without rules, or with rules that read no body, needs no Reader.
//
// # Fields
//
// A field of a rule is written as
//
//	field        = path *("|" path) ["?"]
//	path         = segment *("." segment)
//
// A path leads from the root of a JSON object through the members of objects. "|" separates whole paths:
// "usage.input|usage.prompt" is usage.input or, where that is absent, usage.prompt. The first of them that an event
// has counts. "?" ends the field and says that an absent one is 0. A segment is not empty, and has no dot, "|" or "?":
// names with these characters cannot be reached, nor can the items of arrays.
//
// # What is read
//
// A response is a sequence of units: the JSON values of a body (application/json, +json, and the types of JSON lines;
// the elements of an array at the top level are such values), or the events of text/event-stream. Of each field the
// last of them that has it counts, and only that one. null is absent. If an object has a member twice, the last one
// counts, as in most parsers. An event that is not one JSON object, such as [DONE], is ignored. A body that is not valid
// JSON, or ends within a value or an event, is invalid; what was read before it stays. The last line or event may lack
// the line break or the empty line after it. What nests deeper than 64 is skipped.
//
// A value is a JSON number, or a string with one. Its first 9 decimals count; more are rounded up, or down for a
// negative weight, so that rounding lowers no cost. The field "by" may also have another text.
package cost
