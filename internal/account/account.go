// Package account defines the accounts of an installation. Accounts are isolated from each
// other (contract, section 1).
package account

import (
	"fmt"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/label"
)

// Default is the name of the operator's account, created at the first start.
const Default = "default"

// Tier is what the API calls the plan of an account. It decides how long the audit log is kept.
type Tier string

// The tiers (specification, Limits).
const (
	Starter  Tier = "starter"
	Platform Tier = "platform"
	Scale    Tier = "scale"
)

// Valid reports whether t is one of the tiers.
func (t Tier) Valid() bool { return t == Starter || t == Platform || t == Scale }

// AuditRetentionDays returns the number of days for which audit records are kept.
func (t Tier) AuditRetentionDays() int {
	if t == Starter {
		return 90
	}
	return 365
}

// State is the state of an account.
type State string

// The states. The operator suspends and resumes accounts. Of a deleted account only the audit
// log remains, until its retention ends; its Name is its ID.
const (
	Active    State = "active"
	Suspended State = "suspended"
	Deleted   State = "deleted"
)

// MaxHosts is how many patterns an account may have.
const MaxHosts = 100

// Account is one tenant of the installation.
type Account struct {
	ID        string
	Name      string // unique in the installation
	Tier      Tier
	State     State
	Hosts     []string // patterns of the hostnames that its gateways may use; ignored for Default
	CreatedAt time.Time
	Version   int64

	// DefaultPlanID is the plan of owners that are made because a key names them; "" for none.
	DefaultPlanID string
	// DefaultPlan is the name of that plan, in what package control shows. It is not stored.
	DefaultPlan string
}

// IsDefault reports whether a is the operator's account.
func (a *Account) IsDefault() bool { return a.Name == Default }

// Validate checks the fields that a user gives. The error names every invalid field.
func (a *Account) Validate() error {
	return fault.Join(a.validateName(), a.validateTier(), a.validateHosts())
}

func (a *Account) validateName() error {
	if err := label.CheckName("name", a.Name); err != nil {
		return err
	}
	if _, ok := id.Parse(id.Account, a.Name); ok {
		return fault.Invalid("name", "must not have the form of an identifier: choose another name")
	}
	return nil
}

func (a *Account) validateTier() error {
	if !a.Tier.Valid() {
		return fault.Invalid("plan", "must be starter, platform or scale")
	}
	return nil
}

func (a *Account) validateHosts() error {
	if len(a.Hosts) > MaxHosts {
		return fault.Invalid("hosts", "must have at most %d patterns", MaxHosts)
	}
	errs := make([]error, 0, len(a.Hosts))
	for i, p := range a.Hosts {
		if name := strings.TrimPrefix(p, "*."); name == "" || len(p) > 255 || strings.ContainsFunc(name, notInHostname) {
			errs = append(errs, fault.Invalid(fmt.Sprintf("hosts[%d]", i),
				"%.60q is not a valid pattern: give a hostname, or *.example.com for every name under example.com", p))
		}
	}
	return fault.Join(errs...)
}

func notInHostname(r rune) bool {
	return r != '-' && r != '.' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
}

// MayUse reports whether the account's gateways may have hostname, which is in lower case. Gateways
// of the operator may have any; for other accounts it must match a pattern, where "*.x" matches
// every name under x (contract, 4.1).
func (a *Account) MayUse(hostname string) bool {
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
