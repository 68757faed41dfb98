package gateway

import (
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/ratelimit"
)

// MeterPattern is the pattern of the names of meters.
const MeterPattern = `[a-z0-9_]{1,32}`

// costSchema returns the schema of the cost of a route.
func costSchema() schema {
	units := func(least int, doc string, example any) schema {
		return orNull(schema{"type": "integer", "minimum": least, "maximum": int64(cost.MaxUnits), "description": doc, "examples": []any{example}})
	}
	return orNull(schema{
		"type": "array", "maxItems": cost.MaxRules,
		"description": "What a request costs, for each meter that quotas and limits of plans count. Default: each request costs 1 of the meter requests.",
		"items": schema{
			"type": "object", "additionalProperties": false, "required": []any{"meter", "from"},
			"properties": schema{
				"meter": schema{"type": "string", "pattern": `^(` + MeterPattern + `|.*\$\{env:.*)$`, "not": schema{"enum": []any{ratelimit.BytesIn, ratelimit.BytesOut}},
					"description": "Name of what is counted, such as tokens. Bytes are counted on every route without a cost.", "examples": []any{"tokens"}},
				"reserve": units(0, "What is taken before a request is forwarded, at most max. Default: 1, or the price.", 2000),
				"max":     units(0, "The most that one request may cost. Required with header and json.", 16000),
				"from":    costFromSchema(units(0, "A price: what each request costs.", 5)),
				"unknown": schema{
					"description": "What a request costs at least if its figure cannot be read: max (the default), reserve, or a weight for each byte of a body.",
					"oneOf": []any{
						schema{"enum": []any{"max", "reserve", nil}},
						schema{"type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1, "properties": schema{
							"bytes_in":  schema{"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000, "description": "For each byte of the request's body."},
							"bytes_out": schema{"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000, "description": "For each byte of the response's body."},
						}},
						schema{"type": "string", "pattern": `\$\{env:`},
					},
				},
			},
		},
	})
}

func costFromSchema(price schema) schema {
	fields := func(doc string) schema {
		return schema{"type": "object", "minProperties": 1, "maxProperties": cost.MaxFields, "description": doc,
			"propertyNames":        schema{"minLength": 1, "maxLength": cost.MaxField},
			"additionalProperties": schema{"type": "number", "minimum": -1_000_000, "maximum": 1_000_000}}
	}
	properties := schema{
		"request": price,
		"header":  orNull(schema{"type": "string", "minLength": 1, "description": "Name of a header or trailer of the response with the number of units.", "examples": []any{"X-Tokens-Used"}}),
		"expose":  orNull(schema{"type": "boolean", "description": "Of header: true passes it on to the client. Default: it is removed."}),
		"json":    orNull(fields("Fields of a response in JSON, or of the events of a stream, and what one of each costs. a|b is the first of them that is there; a? may be absent.")),
		"by":      orNull(schema{"type": "string", "minLength": 1, "maxLength": cost.MaxField, "description": "Of json: the field whose value selects one of prices.", "examples": []any{"model"}}),
		"prices": orNull(schema{"type": "object", "minProperties": 1, "maxProperties": cost.MaxPrices, "description": "Of json: other fields and weights for values of by.",
			"propertyNames": schema{"minLength": 1, "maxLength": cost.MaxPriceKey}, "additionalProperties": fields("What counts in place of json.")}),
	}
	only := func(source, kind string, with ...string) schema {
		own := schema{}
		for name := range properties {
			own[name] = schema{"type": "null"}
		}
		for _, name := range with {
			delete(own, name)
		}
		own[source] = schema{"type": kind}
		return schema{"required": []any{source}, "properties": own}
	}
	return schema{
		"type": "object", "additionalProperties": false, "properties": properties,
		"oneOf":       []any{only("request", "integer"), only("header", "string", "expose"), only("json", "object", "by", "prices")},
		"description": "Where the figure is found: exactly one of request, header and json.",
	}
}
