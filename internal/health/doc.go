// Package health checks the targets of upstreams (targets.md, section 3), and reports to package balance what it finds.
//
//	balance.Fleet ─► Service ─► schedule: when a check may begin        pure
//	      ▲             │
//	      │             └─► exchange: one connection, one question      its own goroutine
//	      └── balance.Health.Report ◄──┘
//
// There is one balance.Health for each address and settings, however many upstreams and routes name them, and so one check at a
// time. Checks begin at most at the rates of package constants, for a tenant, an address and in all; what is beyond waits, and
// accounts take turns.
package health
