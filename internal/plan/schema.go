package plan

import (
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/ratelimit"
)

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// FileSchema returns the JSON Schema of files of plans, for editors. As that of gateway.Schema, it checks less than
// ParseFile.
func FileSchema() map[string]any {
	return schema{
		"type": "object", "additionalProperties": false, "required": []any{"plans"},
		"description": "The plans of an account. What a plan leaves out has its default.",
		"properties": schema{
			"$schema": schema{"type": "string", "description": "Address of this schema, for editors. Keygate ignores it."},
			"plans":   schema{"type": "array", "maxItems": MaxPlans, "items": planSchema(), "description": "Plans: named sets of limits that keys, owners and gateways share by reference."},
		},
	}
}

// nameSchema returns the schema of a name of at most so many characters.
func nameSchema(most int, doc, example string) schema {
	return schema{"type": "string", "minLength": 1, "maxLength": most, "pattern": `^([a-z0-9_-]+|.*\$\{env:.*)$`, "description": doc, "examples": []any{example}}
}

func planSchema() schema {
	return schema{
		"type": "object", "additionalProperties": false, "required": []any{"name", "limits"},
		"properties": schema{
			"name":       nameSchema(maxName, "Name of the plan, unique in the account.", "free"),
			"title":      gateway.OrNull(schema{"type": "string", "minLength": 1, "maxLength": label.MaxName, "description": "Title for people."}),
			"time_zone":  gateway.OrNull(schema{"type": "string", "minLength": 1, "maxLength": maxZone, "description": "IANA name of the time zone of its calendar windows. Default: UTC.", "examples": []any{"Europe/Berlin"}}),
			"anchor_day": gateway.OrNull(schema{"type": "integer", "minimum": 1, "maximum": 28, "description": "Day on which its months begin. Default: 1."}),
			"limits":     schema{"type": "array", "maxItems": MaxLimits, "items": limitSchema(), "description": "All limits of the plan."},
		},
	}
}

// absent returns the schema of a field that must be absent or null, and present that of a text that must not be null.
func absent() schema  { return schema{"type": "null"} }
func present() schema { return schema{"type": "string"} }

func limitSchema() schema {
	return schema{
		"type": "object", "additionalProperties": false, "required": []any{"name"},
		"oneOf": []any{
			schema{"required": []any{"sustained"}, "properties": schema{"sustained": present(), "quota": absent(), "concurrency": absent(), "overage": absent(), "warn_at": absent()}},
			schema{"required": []any{"quota"}, "properties": schema{"quota": present(), "sustained": absent(), "burst": absent(), "concurrency": absent()}},
			schema{"required": []any{"concurrency"}, "properties": schema{
				"concurrency": schema{"type": "integer"}, "sustained": absent(), "burst": absent(), "quota": absent(), "overage": absent(), "warn_at": absent(),
				"meter": schema{"enum": []any{ratelimit.Requests, nil}},
			}},
		},
		"properties": schema{
			"name":      nameSchema(maxLimitName, "Name of the limit, unique in the plan.", "per-minute"),
			"sustained": gateway.OrNull(gateway.RateSchema("Of a rate: refill rate, <count>/<unit>. Without burst, its count is also the capacity.", "600/min")),
			"burst":     gateway.OrNull(gateway.RateSchema("Of a rate: capacity: its count.", "50/s")),
			"quota": gateway.OrNull(schema{"type": "string", "pattern": `^([1-9][0-9]{0,15}/(day|week|month|total)|.*\$\{env:.*)$`,
				"description": "Of a quota: units for each calendar window, <count>/<window>: day, week, month, or total, which never ends.", "examples": []any{"100000/month"}}),
			"concurrency": gateway.OrNull(gateway.ConcurrencySchema("Requests in flight: how many there may be at once, streams and upgrades included.")),
			"meter": gateway.OrNull(schema{"type": "string", "pattern": `^(` + gateway.MeterPattern + `|.*\$\{env:.*)$`, "examples": []any{"tokens"},
				"description": "What the limit counts: requests (the default), the bytes of the bodies of requests (bytes_in) or of responses (bytes_out), or the meter of a cost of routes."}),
			"overage": gateway.OrNull(schema{"enum": []any{string(OverageRefuse), string(OverageAllow)}, "description": "Of a quota: refuse (the default) refuses requests beyond the count, allow only counts them."}),
			"warn_at": gateway.OrNull(schema{"type": "array", "maxItems": maxWarnings, "items": schema{"type": "integer", "minimum": 1, "maximum": MaxPercent},
				"description": "Of a quota: percentages of the count at which the event quota.threshold is raised. Default: 80 and 100.", "examples": []any{[]any{50, 80, 100}}}),
			"per":     gateway.OrNull(schema{"enum": []any{string(PerKey), string(PerOwner)}, "description": "Whom the limit counts: key (the default) each key by itself, owner all keys of an owner together."}),
			"gateway": gateway.OrNull(schema{"type": "string", "minLength": 1, "maxLength": label.MaxName, "description": "Name of the only gateway that the limit is for. If absent, it is for all.", "examples": []any{"orders"}}),
			"routes": gateway.OrNull(schema{"type": "array", "maxItems": MaxRoutes, "items": schema{"type": "string", "pattern": "^(/|.*\\$\\{env:)", "maxLength": maxPath},
				"description": "Paths of routes of the gateway, or /prefix/*. If absent, the limit is for all of its routes.", "examples": []any{[]any{"/search/*"}}}),
		},
	}
}
