package ratelimit

import (
	"encoding/json"

	"github.com/keygate/keygate/internal/fault"
)

// KeyLimit is the rate limit of a key: a Config without Per, written either as a single rate,
// which is its Sustained, or as an object. The zero value means no limit. Values are comparable:
// two are equal if they have the same effect and are written in the same way.
type KeyLimit struct {
	Config
	single bool // written as a single rate
}

// RateOf returns the limit that is written as the rate r.
func RateOf(r Rate) KeyLimit {
	if r.IsZero() {
		return KeyLimit{}
	}
	return KeyLimit{Config: Config{Sustained: r}, single: true}
}

// ParseKeyObject parses the properties of a limit that is written as an object. An empty
// string is an absent property. Errors name the property as their field.
func ParseKeyObject(sustained, burst, daily string) (KeyLimit, error) {
	c, err := ParseConfig(sustained, burst, daily, "")
	return KeyLimit{Config: c}, err
}

// Single returns the rate if the limit is written as a single rate.
func (l KeyLimit) Single() (r Rate, ok bool) { return l.Sustained, l.single }

// storedLimit is the text of a limit that is written as an object.
type storedLimit struct {
	Sustained string `json:"sustained,omitempty"`
	Burst     string `json:"burst,omitempty"`
	Daily     string `json:"daily,omitempty"`
}

// String returns the rate, or the object as JSON, or "" for no limit.
func (l KeyLimit) String() string {
	switch {
	case l.IsZero():
		return ""
	case l.single:
		return l.Sustained.String()
	default:
		text, _ := json.Marshal(storedLimit{l.Sustained.String(), l.Burst.String(), l.Daily.String()}) //nolint:errchkjson // strings only
		return string(text)
	}
}

// IsZero reports whether l limits nothing.
func (l KeyLimit) IsZero() bool { return l.Config.IsZero() }

// ParseKeyLimit parses the result of String. The error is a validation error.
func ParseKeyLimit(text string) (KeyLimit, error) {
	if text == "" || text[0] != '{' {
		var r Rate
		err := r.UnmarshalText([]byte(text))
		return RateOf(r), err
	}
	var s storedLimit
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return KeyLimit{}, fault.Invalid("", "must be a rate, or an object with sustained, burst and daily")
	}
	return ParseKeyObject(s.Sustained, s.Burst, s.Daily)
}
