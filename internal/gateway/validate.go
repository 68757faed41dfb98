package gateway

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// ValidateMode says whether requests are held against the OpenAPI document of their gateway (edge.md, section 6).
type ValidateMode string

// The modes.
const (
	ValidateOff     ValidateMode = "off"
	ValidateReport  ValidateMode = "report"  // count the requests that do not meet the document
	ValidateEnforce ValidateMode = "enforce" // refuse them
)

// ValidateModes returns the modes, the default first.
func ValidateModes() []string {
	return []string{string(ValidateOff), string(ValidateReport), string(ValidateEnforce)}
}

// OrOff returns m, or ValidateOff for "".
func (m ValidateMode) OrOff() ValidateMode {
	if m == "" {
		return ValidateOff
	}
	return m
}

// Looks reports whether requests are held against the document at all.
func (m ValidateMode) Looks() bool { return m == ValidateReport || m == ValidateEnforce }

// Shared returns m in memory that belongs to no record.
func (m ValidateMode) Shared() ValidateMode {
	for _, known := range [...]ValidateMode{ValidateOff, ValidateReport, ValidateEnforce} {
		if m == known {
			return known
		}
	}
	return ""
}

// stored returns m in the stored form of a gateway: "" for ValidateOff.
func (m ValidateMode) stored() ValidateMode {
	if m == ValidateOff {
		return ""
	}
	return m
}

// Checks is what of a gateway's OpenAPI document is compiled to hold requests against it. The zero value is nothing.
type Checks struct {
	// Operations is the number of operations of the document, from the first on. Requests of those behind it are not checked.
	Operations int `json:"operations"`
	// Bytes is about how much memory they take.
	Bytes int64 `json:"bytes"`
}

// CheckValidate checks the mode of a gateway or a route. The error is a validation error of the field "validate".
func CheckValidate(s string) error {
	if modes := ValidateModes(); !slices.Contains(modes, s) {
		return fault.Invalid("validate", "must be one of %s", strings.Join(modes, ", "))
	}
	return nil
}

// ModeOf returns the mode for the requests of a route: its own, or that of the gateway.
func (r *Requests) ModeOf(h *Handling) ValidateMode {
	if h != nil && h.Validate != "" {
		return h.Validate
	}
	return r.Validate.OrOff()
}

// Validates reports whether any request of the gateway is held against its document.
func (g *Gateway) Validates(routes []Route) bool {
	return g.Requests.Validate.Looks() || slices.ContainsFunc(routes, func(r Route) bool { return g.Requests.ModeOf(r.Handling).Looks() })
}

// validateField is the mode of a route.
func validateField() handlingField {
	return handlingField{
		name:    "validate",
		present: func(h *Handling) bool { return h.Validate != "" },
		value:   func(h *Handling) any { return string(h.Validate) },
		copyTo:  func(to, from *Handling) { to.Validate = from.Validate },
		check:   func(h *Handling, _ string) error { return CheckValidate(string(h.Validate)) },
		part: func(h *Handling) part {
			return textPart("validate", (*string)(&h.Validate), schema{"enum": []any{string(ValidateOff), string(ValidateReport), string(ValidateEnforce)}})
		},
		doc: "Whether requests of the route are held against the OpenAPI document of the gateway: off, report or enforce. Default: that of the gateway.",
	}
}
