// Package sender sends webhook deliveries to their endpoints (contract, section 6).
//
// Deliveries wait in the store, behind the interface [Queue]. A sender leases due deliveries, sends
// them, and writes the results back. Claims and results are batched:
//
//	store ──looks──► dispatcher: endpoints with due deliveries
//	store ──claim──► dispatcher ──attempt──► endpoint
//	  ▲                   │ unsent              │
//	  └──── writer ◄── results ◄────────────────┘
//
// The parts are:
//
//   - The finder asks the store which endpoints have due deliveries: often for those that
//     became due since it last asked, now and then for all.
//   - The dispatcher decides which deliveries to claim and which to send next. It keeps
//     the state of each endpoint: its queue, how many deliveries may be in flight, and
//     its circuit breaker. It shares the slots in flight and the leases out between
//     accounts, then endpoints (docs/adr/0010-webhook-slots.md).
//   - An attempt is one HTTP request.
//   - The results queue holds what the store must learn: results of attempts, and
//     deliveries that the dispatcher hands back unsent.
//   - The writer writes them to the store in batches, and then reports to the dispatcher
//     that their leases have ended.
//
// The dispatcher adds to the results queue while it holds its own lock. The results
// queue takes no other lock, so the order is always the same.
//
// Delivery is at least once. A process that dies leaves leases behind; when they
// expire, another claim takes the deliveries and sends them again.
//
// When an endpoint changes, Recall hands back the deliveries that are queued for it.
// They are claimed again and sent as the endpoint is configured then. Deliveries in
// flight are not interrupted.
package sender
