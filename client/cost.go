package client

import (
	"bytes"
	"encoding/json"
)

// Cost is what a request to a route costs of one meter, which limits of plans count (contract of plans, section 5).
type Cost struct {
	Meter   string       `json:"meter"`             // 1 to 32 characters of a-z, 0-9 and _; not bytes_in or bytes_out
	Reserve *int64       `json:"reserve,omitempty"` // taken before forwarding; nil: 1, or the price
	Max     *int64       `json:"max,omitempty"`     // the most that one request may cost; required with Header and JSON
	From    CostFrom     `json:"from"`
	Unknown *CostUnknown `json:"unknown,omitempty"` // nil: max
}

// CostFrom says where the figure is found: in exactly one of Request, Header and JSON.
type CostFrom struct {
	Request *int64 `json:"request,omitempty"` // a price for each request

	Header string `json:"header,omitempty"` // a header or trailer of the response
	Expose bool   `json:"expose,omitempty"` // it is passed on to the client

	JSON   map[string]float64            `json:"json,omitempty"`   // fields of the response and what one of each costs
	By     string                        `json:"by,omitempty"`     // field whose value selects one of Prices
	Prices map[string]map[string]float64 `json:"prices,omitempty"` // in place of JSON
}

// CostUnknown is what a request costs at least if its figure is missing: a Fallback ("max" or "reserve"), or a weight for each
// byte of the body of the request or of the response.
type CostUnknown struct {
	Fallback string

	BytesIn, BytesOut float64
}

type unknownWeights struct {
	BytesIn  float64 `json:"bytes_in,omitempty"`
	BytesOut float64 `json:"bytes_out,omitempty"`
}

// MarshalJSON returns a string for a Fallback, else an object.
func (u CostUnknown) MarshalJSON() ([]byte, error) {
	if u.Fallback != "" {
		return json.Marshal(u.Fallback)
	}
	return json.Marshal(unknownWeights{u.BytesIn, u.BytesOut})
}

// UnmarshalJSON decodes a string or an object.
func (u *CostUnknown) UnmarshalJSON(data []byte) error {
	*u = CostUnknown{}
	if bytes.HasPrefix(data, []byte{'"'}) {
		return json.Unmarshal(data, &u.Fallback)
	}
	var w unknownWeights
	err := json.Unmarshal(data, &w)
	u.BytesIn, u.BytesOut = w.BytesIn, w.BytesOut
	return err
}
