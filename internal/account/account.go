// Package account defines the accounts that an installation serves. Accounts
// see nothing of each other (contract, section 1).
package account

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/fault"
)

// Default is the name of the operator's account, made at the first start.
const Default = "default"

// Plan decides how long the audit log is kept.
type Plan string

// The plans (specification, Limits).
const (
	Starter  Plan = "starter"
	Platform Plan = "platform"
	Scale    Plan = "scale"
)

// Valid reports whether p is one of the plans.
func (p Plan) Valid() bool { return p == Starter || p == Platform || p == Scale }

// AuditRetentionDays returns for how many days audit records are kept.
func (p Plan) AuditRetentionDays() int {
	if p == Starter {
		return 90
	}
	return 365
}

// Account is one tenant of the installation.
type Account struct {
	ID        string
	Name      string // unique in the installation
	Plan      Plan
	Hosts     []string // patterns of the hostnames its gateways may take; ignored for Default
	CreatedAt time.Time
}

// IsDefault reports whether a is the operator's account.
func (a *Account) IsDefault() bool { return a.Name == Default }

// Validate checks the fields that a person gives.
func (a *Account) Validate() error {
	if a.Name == "" || utf8.RuneCountInString(a.Name) > 255 {
		return fault.Invalid("name", "must have 1 to 255 characters")
	}
	if strings.ContainsFunc(a.Name, unicode.IsControl) {
		return fault.Invalid("name", "may not hold control characters, such as the end of a line")
	}
	if !a.Plan.Valid() {
		return fault.Invalid("plan", "must be starter, platform or scale")
	}
	for _, p := range a.Hosts {
		if name := strings.TrimPrefix(p, "*."); name == "" || strings.ContainsAny(name, "*/: ") {
			return fault.Invalid("host", "%q is no pattern: give a hostname, or *. and a domain for every name below it", p)
		}
	}
	return nil
}

// MayTake reports whether the account may give hostname, in lower case, to a
// gateway: the operator any, others those that match a pattern, where "*.x"
// stands for every name below x (contract, 4.1).
func (a *Account) MayTake(hostname string) bool {
	if a.IsDefault() {
		return true
	}
	for _, p := range a.Hosts {
		p = strings.ToLower(p)
		if p == hostname {
			return true
		}
		if below, ok := strings.CutPrefix(p, "*"); ok && strings.HasSuffix(hostname, below) && len(hostname) > len(below) {
			return true
		}
	}
	return false
}
