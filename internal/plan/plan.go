// Package plan defines plans: named sets of limits that many keys or owners share by reference (plans.md, section 3).
package plan

import (
	"strings"
	"time"
	_ "time/tzdata" // zones do not depend on the machine

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The bounds of plans (docs/limits.md).
const (
	MaxPlans  = 10_000 // of an account
	MaxLimits = 8      // of a plan
	MaxRoutes = 100    // of a limit
	maxName   = 64     // bytes of a plan's name
	maxPath   = 255    // bytes of one of a limit's routes
	maxZone   = 64     // bytes of the name of a time zone
)

// The values of plans that set none.
const (
	DefaultZone   = "UTC"
	DefaultAnchor = 1
	DefaultMeter  = ratelimit.Requests // of limits
)

// Plan is the stored record of a plan.
type Plan struct {
	ID        string
	AccountID string
	Name      string // unique in the account
	Title     string // "" for none
	Limits    []Limit
	TimeZone  string // IANA name of the zone of its calendar windows
	AnchorDay int    // the day on which its months begin, 1 to 28
	CreatedAt time.Time

	// Version increases with every change by a management request. It is the ETag.
	Version int64
}

// Validate checks the fields that a user sets, except for the gateways of limits. The error names every invalid
// field.
func (p *Plan) Validate() error {
	var badTitle error
	if p.Title != "" {
		badTitle = label.CheckName("title", p.Title)
	}
	return fault.Join(CheckName("name", p.Name), badTitle, checkLimits(p.Limits), CheckZone("time_zone", p.TimeZone), CheckAnchor("anchor_day", p.AnchorDay))
}

// CheckName checks the name of a plan. The error is a validation error of the field.
func CheckName(field, name string) error {
	return checkName(field, name, maxName)
}

// checkName checks a name of 1 to most of a-z 0-9 - _.
func checkName(field, name string, most int) error {
	bad := name == "" || len(name) > most
	for i := 0; i < len(name) && !bad; i++ {
		c := name[i]
		bad = (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
	}
	if bad {
		return fault.Invalid(field, "must have 1 to %d characters of a-z, 0-9, - and _", most)
	}
	return nil
}

// CheckZone checks the name of a time zone. The error is a validation error of the field.
func CheckZone(field, zone string) error {
	// To the library "Local" is the zone of the machine, and a path leads to a file.
	if zone == "" || zone == "Local" || len(zone) > maxZone || isOfMachine(zone) {
		return badZone(field, zone)
	}
	if _, err := time.LoadLocation(zone); err != nil {
		return badZone(field, zone)
	}
	return nil
}

// isOfMachine reports whether a name is not one of a zone, but what some machines keep beside them.
func isOfMachine(zone string) bool {
	switch first, _, _ := strings.Cut(zone, "/"); first {
	case "localtime", "posixrules", "Factory", "posix", "right":
		return true
	}
	return false
}

func badZone(field, zone string) error {
	return fault.Invalid(field, "%.64q is not a time zone: give an IANA name such as Europe/Berlin, or UTC", zone)
}

// CheckAnchor checks the day on which months begin. The error is a validation error of the field.
func CheckAnchor(field string, day int) error {
	if day < 1 || day > 28 {
		return fault.Invalid(field, "must be between 1 and 28, which every month has")
	}
	return nil
}
