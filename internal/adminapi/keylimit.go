package adminapi

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
)

// keyLimitInput is the rate limit of a key in a request: a string, or an object.
type keyLimitInput struct{ control.KeyLimitInput }

// keyLimitObject is the object, in requests and responses.
type keyLimitObject struct {
	Sustained *string `json:"sustained"`
	Burst     *string `json:"burst"`
	Daily     *string `json:"daily"`
}

// UnmarshalJSON decodes a value that the schema has accepted.
func (l *keyLimitInput) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return unmarshal(data, &l.Rate)
	}
	var o keyLimitObject
	err := unmarshal(data, &o)
	l.Object = &control.KeyLimitObject{Sustained: value(o.Sustained), Burst: value(o.Burst), Daily: value(o.Daily)}
	return err
}

// Schema returns the schema of both forms.
func (keyLimitInput) Schema(huma.Registry) *huma.Schema {
	single, object := keyLimitForms()
	object.AdditionalProperties = false
	return &huma.Schema{OneOf: []*huma.Schema{single, object, {Type: nullType}}}
}

// keyLimitRecord is the rate limit of a key in a response, in the form in which it was given.
type keyLimitRecord struct{ ratelimit.KeyLimit }

func presentKeyLimit(l ratelimit.KeyLimit) *keyLimitRecord {
	if l.IsZero() {
		return nil
	}
	return &keyLimitRecord{l}
}

// MarshalJSON returns a string or an object.
func (l keyLimitRecord) MarshalJSON() ([]byte, error) {
	if r, single := l.Single(); single {
		return json.Marshal(r.String())
	}
	return json.Marshal(keyLimitObject{rate(l.Sustained), rate(l.Burst), rate(l.Daily)})
}

// Schema returns the schema of both forms.
func (keyLimitRecord) Schema(huma.Registry) *huma.Schema {
	single, object := keyLimitForms()
	object.Required = []string{"burst", "daily", "sustained"}
	return &huma.Schema{OneOf: []*huma.Schema{single, object, {Type: nullType}}}
}

func keyLimitForms() (single, object *huma.Schema) {
	property := func(doc, example string) *huma.Schema {
		s := textSchema()
		s.Nullable, s.Description, s.Examples = true, doc, []any{example}
		return s
	}
	single = textSchema()
	single.Description, single.Examples = "Refill rate and capacity, <count>/<unit>.", []any{"100/s"}
	return single, &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
		"sustained": property("Refill rate, <count>/<unit>.", "600/min"),
		"burst":     property("Bucket capacity, <count>/<unit>.", "50/s"),
		"daily":     property("Maximum number of requests in a UTC day, <count>/day.", "100000/day"),
	}}
}
