package rows

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// The stored states of deliveries.
const (
	DeliveryPending = iota
	DeliveryRetry
	DeliveryDelivered
	DeliveryFailed
)

// deliveryStates returns the states of deliveries in the order of their stored numbers.
func deliveryStates() []webhook.DeliveryState {
	return []webhook.DeliveryState{webhook.Pending, webhook.RetryScheduled, webhook.Delivered, webhook.Failed}
}

// DeliveryState returns the stored number of a state, or -1 for an unknown state.
func DeliveryState(s webhook.DeliveryState) int { return slices.Index(deliveryStates(), s) }

// DeliveryTypes returns the event types that a delivery may have.
func DeliveryTypes() []event.Type { return append(webhook.EventTypes(), webhook.Test) }

// Response returns the part of an attempt's response that is kept, nil if there was none.
func Response(a *webhook.Attempt) []byte {
	if a.Response == nil {
		return nil
	}
	return a.Response[:min(len(a.Response), webhook.KeptResponse)]
}

// eventTypes returns the event types of an endpoint as they are stored, separated by spaces.
func eventTypes(types []event.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, " ")
}

// readEventTypes reads what eventTypes returned.
func readEventTypes(s string) (types []event.Type) {
	for t := range strings.FieldsSeq(s) {
		types = append(types, event.Type(t))
	}
	return types
}
