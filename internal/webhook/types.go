package webhook

import (
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
)

// EventTypes returns the event types that an endpoint may subscribe to.
func EventTypes() []event.Type {
	return []event.Type{
		event.KeyCreated, event.KeyRotated, event.KeyRevoked, event.KeyExpired,
		event.RateLimitExceeded, event.GatewayUpstreamError, event.GatewaySpecPushed, event.GatewaySyncFailed,
		event.OwnerSuspended, event.OwnerResumed, event.QuotaThreshold, event.UsageFinalized,
		event.UpstreamTargetDown, event.UpstreamTargetUp,
		event.CanaryAdvanced, event.CanaryAborted, event.CanaryPromoted, event.CanaryPaused,
		event.IssuerUnreachable, event.UserRoleChanged, event.UserSuspended,
		event.CertificateRenewed, event.CertificateFailed, event.CertificateExpiring,
	}
}

// ParseEvents returns the given event types in their order, without duplicates. The
// error is a validation error of the field "events" or of the invalid element.
func ParseEvents(given []string) ([]event.Type, error) {
	known := EventTypes()
	if len(given) == 0 {
		return nil, fault.Invalid("events", "must list at least one of %s", list(known))
	}
	types := make([]event.Type, 0, len(known))
	var problems []error
	for i, g := range given {
		t := event.Type(g)
		if !slices.Contains(known, t) {
			problems = append(problems, fault.Invalid("events["+strconv.Itoa(i)+"]", "must be one of %s", list(known)))
			if len(problems) == fault.MaxProblems {
				break
			}
		} else if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types, fault.Join(problems...)
}

func list(types []event.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
