// Package owner defines owners: the customers or teams whose keys the keys of an account are (plans.md, section 2).
package owner

import (
	"strings"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
)

// State is the state of an owner.
type State string

// The states. The data plane refuses the keys of a suspended owner.
const (
	Active    State = "active"
	Suspended State = "suspended"
)

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return s == Active || s == Suspended }

// Owner is the stored record of an owner. Empty strings and zero values mean absent.
type Owner struct {
	ID         string
	AccountID  string
	ExternalID string // the owner of its keys; unique in the account, and never changed
	Name       string
	PlanID     string
	Plan       string // the name of that plan, in what package control shows; it is not stored
	State      State
	Metadata   map[string]string
	TimeZone   string // IANA name; "" for that of the plan
	AnchorDay  int    // 1 to 28; 0 for that of the plan
	CreatedAt  time.Time

	// Version increases with every change by a management request. It is the ETag.
	Version int64
}

// MaxExternalID is the most bytes of an external ID.
const MaxExternalID = 255

// Validate checks the fields that a user sets, except for PlanID. The error names every invalid field.
func (o *Owner) Validate() error {
	var badName, badState error
	if o.Name != "" {
		badName = label.CheckName("name", o.Name)
	}
	if !o.State.Valid() {
		badState = fault.Invalid("state", "must be active or suspended")
	}
	return fault.Join(CheckExternalID("external_id", o.ExternalID), badName, badState, label.CheckMetadata("metadata", o.Metadata))
}

// CheckExternalID checks an external ID: 1 to MaxExternalID printable ASCII characters. The error is a validation
// error of the field.
func CheckExternalID(field, s string) error {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return badExternalID(field)
		}
	}
	if s == "" || len(s) > MaxExternalID {
		return badExternalID(field)
	}
	// The upstream receives it in a header, where spaces around the value are not significant: two owners would
	// look the same.
	if strings.TrimSpace(s) != s {
		return fault.Invalid(field, "must not begin or end with a space")
	}
	return nil
}

func badExternalID(field string) error {
	return fault.Invalid(field, "must have 1 to %d printable ASCII characters", MaxExternalID)
}

// EventData returns the data of the events about the owner.
func (o *Owner) EventData() event.Owner {
	d := event.Owner{OwnerID: o.ID, Owner: o.ExternalID}
	if o.Name != "" {
		d.Name = &o.Name
	}
	return d
}
