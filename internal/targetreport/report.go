package targetreport

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/balance"
)

// Report is the state of a target of an upstream at one address, as one node sees it (targets.md, section 3).
type Report struct {
	balance.Name
	URL, Address string
	State        string // of balance.State
	Draining     bool   // also if the upstream does not have it any more
	Degraded     bool   // its name could not be looked up last
	Since        time.Time
	Until        time.Time // of an ejection; otherwise zero
	Reason       string    // why it is unhealthy or ejected
	InFlight     int64     // requests of the upstream
	Requests     int64     // attempts since the node has started
	Failures     int64
	LastCheck    time.Time // zero without checks
}

// Key names a Report among those of a node.
type Key struct {
	balance.Name
	URL, Address string
}

func (r *Report) key() Key { return Key{r.Name, r.URL, r.Address} }

// NodeReport is a Report with the name of its node.
type NodeReport struct {
	Node string
	Report
}

// Batch is what a node writes at once.
type Batch struct {
	Claimant string // names the node's lease
	Put      []Report
	Remove   []Key
	// Ends is set in the last batch of a report. Number is then that of a change that was in force before the figures were read,
	// and LeftOut are the accounts some of whose draining targets with requests in flight are not in the report; AllAccounts stands
	// for all.
	Ends    bool
	Number  int64
	LeftOut []string
}

// AllAccounts is in Batch.LeftOut if there are too many accounts to name.
const AllAccounts = "*"

// NodeFlight is what a node has reported about a target.
type NodeFlight struct {
	Node     string
	Claimant string
	Number   int64 // of Batch; -1 without a report
	LeftOut  bool  // the report may lack the target
	InFlight int64
}

// Store keeps the reports of the nodes that share it. It is safe for concurrent use.
type Store interface {
	// PutTargetReports carries out a Batch in one transaction.
	PutTargetReports(ctx context.Context, b *Batch) error
	// TargetReports returns up to limit reports on an upstream of nodes that hold a lease, except those of a claimant: first those
	// of targets that are not healthy or drain.
	TargetReports(ctx context.Context, n balance.Name, except string, limit int) ([]NodeReport, error)
	// TargetFlights returns, of each node with a data plane that holds a lease, what it has reported about a target.
	TargetFlights(ctx context.Context, n balance.Name, url string) ([]NodeFlight, error)
	// TrimTargetReports removes up to limit reports of leases that have ended, and returns how many it has removed.
	TrimTargetReports(ctx context.Context, limit int) (removed int, err error)
}

// Clock converts times of package balance.
type Clock struct {
	Mono func() time.Duration // as package balance has it
	Wall func() time.Time
}

// reporting makes Reports at one moment.
type reporting struct {
	mono time.Duration
	wall time.Time
}

func (c *Clock) now() reporting { return reporting{c.Mono(), c.Wall()} }

func (r *reporting) timeOf(mono time.Duration) time.Time {
	return r.wall.Add(mono - r.mono).UTC().Truncate(time.Microsecond)
}

// of returns the Report of what was observed.
func (r *reporting) of(n balance.Name, s *balance.Status) Report {
	report := Report{
		Name: n, URL: s.URL, Address: s.Address, State: s.State.String(), Draining: s.Draining, Degraded: s.Degraded, Since: r.timeOf(s.Since), Reason: s.Reason,
		InFlight: s.Own, Requests: int64(s.Requests), Failures: int64(s.Failures),
	}
	if s.State == balance.Ejected {
		report.Until = r.timeOf(s.Until)
	}
	if s.LastCheck.Known {
		report.LastCheck = r.timeOf(s.LastCheck.At)
	}
	return report
}
