package moving

import (
	"bytes"
	"encoding/json"

	"github.com/keygate/keygate/internal/fault"
)

// Origin says which route of the other gateway a route of a configuration file comes from.
type Origin struct {
	Gateway string   `json:"gateway"` // by name
	Path    string   `json:"path"`
	Methods []string `json:"methods"`
	Name    string   `json:"name,omitempty"` // of the other gateway's route
	ID      string   `json:"id,omitempty"`
}

// origins is the content of a file of origins.
type origins struct {
	Routes []Origin `json:"routes"`
}

// OriginsText returns the origins of routes as the content of origins.json, a line for each.
func (r *Result) OriginsText() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"routes": [`)
	for i := range r.Origins {
		line, err := json.Marshal(&r.Origins[i])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(line)
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), nil
}

// ReadOrigins reads what OriginsText returned.
func ReadOrigins(content []byte) ([]Origin, error) {
	var o origins
	if err := json.Unmarshal(content, &o); err != nil {
		return nil, fault.Invalid("", "is not a file of origins: import again, or remove it")
	}
	return o.Routes, nil
}
