package gateway

import (
	"encoding/json"
	"maps"

	"github.com/keygate/keygate/internal/ratelimit"
)

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// SchemaID is the identifier of the JSON Schema of configuration files.
const SchemaID = "https://keygate.dev/schemas/configuration-file.json"

// Schema returns the JSON Schema (draft 2020-12) of configuration files, for editors. It
// describes a file as its author writes it, with ${env:NAME} in the place of any string. It is
// derived from the table of settings, as ParseDocument is, but checks less: rules that depend on
// several fields, and the form of paths, durations and certificates, are left to ParseDocument.
func Schema() []byte {
	gatewayFields := schema{}
	for _, s := range Settings() {
		field := maps.Clone(s.values.schema())
		if !s.NotNull {
			field = orNull(field)
		}
		field["description"] = s.Doc.File
		gatewayFields[s.Name] = field
	}
	gatewayFields[upstreamsField] = upstreamsSchema()
	content, err := json.MarshalIndent(schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         SchemaID,
		"title":       "Keygate configuration file",
		"description": "The settings and routes of a gateway. Absent settings do not change; null restores the default. The routes replace all routes of the gateway.",
		"type":        "object", "additionalProperties": false, "required": []any{"routes"},
		"properties": schema{
			"$schema": schema{"type": "string", "description": "Address of this schema, for editors. Keygate ignores it."},
			"gateway": schema{"type": "object", "additionalProperties": false, "properties": gatewayFields, "description": "Settings of the gateway."},
			"routes":  schema{"type": "array", "maxItems": MaxRoutes, "items": routeSchema(), "description": "All routes of the gateway."},
		},
	}, "", "  ")
	if err != nil {
		panic(err) // the schema consists of maps, lists, strings and numbers
	}
	return append(content, '\n')
}

func routeSchema() schema {
	properties := schema{
		"path": schema{"type": "string", "pattern": "^(/|.*\\$\\{env:)", "maxLength": MaxTemplate,
			"description": "OpenAPI path template, or a path that ends in /* and matches everything below it.", "examples": []any{"/orders/{id}"}},
		"methods": schema{"type": "array", "minItems": 1, "maxItems": MaxMethods, "items": schema{"type": "string", "pattern": "^([^a-z]+|.*\\$\\{env:.*)$"},
			"description": "HTTP methods, in upper case.", "examples": []any{[]any{"GET", "POST"}}},
		"rate_limit": orNull(limitSchema()),
		"concurrency": orNull(schema{
			"type": "object", "additionalProperties": false, "required": []any{"max"}, "description": "Bound of the requests of the route that are in flight.",
			"properties": schema{
				"max": ConcurrencySchema("How many requests may be in flight at once, streams and upgrades included."),
				"per": orNull(schema{"enum": []any{ratelimit.PerKey}, "description": "key allows each key as many. If absent, all callers share them."}),
			},
		}),
		"cost": costSchema(),
		"upstream": orNull(schema{"type": "string", "pattern": `^([a-z0-9_-]+|.*\$\{env:.*)$`, "maxLength": maxUpstreamName,
			"description": "Name of the upstream that gets the requests. Default: the upstream with the name default.", "examples": []any{"next"}}),
		splitField: routeSplitSchema(),
		"auth":     schema{"enum": []any{string(AuthKey), string(AuthToken), string(AuthAny), string(AuthNone)}, "description": "key requires an API key, token a token of one of the gateway's issuers, any either of them; none makes the route public. Default: default_auth of the gateway."},
	}
	handlingSchemas(properties)
	return schema{"type": "object", "additionalProperties": false, "required": []any{"path", "methods"}, "properties": properties}
}

func routeSplitSchema() schema {
	return withDescription(orNull(splitSchema()), "Which requests go to another upstream. The first entry whose when holds decides, else the one with a weight. null or absent means the split of the gateway, [] none.")
}

// rateSchema returns the schema of a rate. units is the group of a pattern that its unit must match.
func rateSchema(units, doc, example string) schema {
	return orNull(schema{"type": "string", "pattern": `^([1-9][0-9]{0,9}/(` + units + `)|.*\$\{env:.*)$`, "description": doc, "examples": []any{example}})
}

const rateUnits = "s|sec|second|min|minute|h|hour|day"

// RateSchema returns the schema of a rate, which is never null.
func RateSchema(doc, example string) map[string]any {
	return notNull(rateSchema(rateUnits, doc, example))
}

// ConcurrencySchema returns the schema of a number of requests in flight.
func ConcurrencySchema(doc string) map[string]any {
	return schema{"type": "integer", "minimum": 1, "maximum": ratelimit.MaxConcurrency, "description": doc, "examples": []any{5}}
}

// OrNull returns a schema that also accepts null.
func OrNull(s map[string]any) map[string]any { return orNull(s) }

func limitSchema() schema {
	return schema{
		"type": "object", "additionalProperties": false, "minProperties": 1,
		"description": "Rate limit of the route.",
		"properties": schema{
			"sustained": rateSchema(rateUnits, "Refill rate, <count>/<unit>. Without burst, its count is also the capacity.", "600/min"),
			"burst":     rateSchema(rateUnits, "Capacity: its count. Without sustained, its own rate is also the refill rate.", "50/s"),
			"daily":     rateSchema("day", "Maximum number of requests in a UTC day.", "100000/day"),
			"per":       orNull(schema{"enum": []any{ratelimit.PerKey, ratelimit.PerAddress}, "description": "key gives each key its own bucket, address each client address (IPv6: each /64), without daily. If absent, all callers share one."}),
		},
	}
}

func globalLimitSchema() schema {
	limit := limitSchema()
	fields, _ := limit["properties"].(schema)
	limit["properties"] = schema{"sustained": notNull(fields["sustained"]), "burst": fields["burst"]}
	limit["required"] = []any{"sustained"}
	return limit
}

// orNull returns a schema that also accepts null.
func orNull(s schema) schema {
	s = maps.Clone(s)
	if list, ok := s["enum"].([]any); ok {
		s["enum"] = append(list[:len(list):len(list)], nil)
		return s
	}
	s["type"] = []any{s["type"], "null"}
	return s
}

// notNull returns the schema that orNull was given.
func notNull(s any) schema {
	all, _ := s.(schema)
	all = maps.Clone(all)
	types, _ := all["type"].([]any)
	all["type"] = types[0]
	return all
}
