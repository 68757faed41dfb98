package client

import (
	"encoding/json"
	"strings"
)

// KeyRateLimit is the rate limit of a key. It has either a Rate alone, or at least one of the other
// fields. The server keeps the form that it was given (contract, section 3.1).
type KeyRateLimit struct {
	Rate string `json:"-"` // the refill rate and the capacity, <count>/<unit>

	Sustained string `json:"sustained,omitempty"` // refill rate, <count>/<unit>
	Burst     string `json:"burst,omitempty"`     // capacity, <count>/<unit>
	Daily     string `json:"daily,omitempty"`     // cap per UTC day, <count>/day
}

// MarshalJSON returns a string for a Rate, else an object.
func (l KeyRateLimit) MarshalJSON() ([]byte, error) {
	if l.Rate != "" {
		return json.Marshal(l.Rate)
	}
	type object KeyRateLimit
	return json.Marshal(object(l))
}

// UnmarshalJSON decodes a string or an object.
func (l *KeyRateLimit) UnmarshalJSON(data []byte) error {
	*l = KeyRateLimit{}
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &l.Rate)
	}
	type object KeyRateLimit
	return json.Unmarshal(data, (*object)(l))
}

// String returns the limit as in 100/min, or as in sustained=100/min,daily=5000/day.
func (l KeyRateLimit) String() string {
	if l.Rate != "" {
		return l.Rate
	}
	var parts []string
	for _, part := range [][2]string{{"sustained", l.Sustained}, {"burst", l.Burst}, {"daily", l.Daily}} {
		if part[1] != "" {
			parts = append(parts, part[0]+"="+part[1])
		}
	}
	return strings.Join(parts, ",")
}
