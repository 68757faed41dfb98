package gateway

import (
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// ConnectedRepository is the stored record of the Git repository that a gateway follows
// (contract, section 5). Empty strings, nil and zero times mean that a value is absent.
type ConnectedRepository struct {
	GatewayID string
	AccountID string

	URL      string
	Branch   string
	Path     string // of one file, slash-separated
	Kind     DocumentKind
	Interval string // a Go duration as given

	Credential []byte // sealed JSON of a repository.Credential
	KnownHosts string // lines of a known_hosts file
	HostKey    string // of the ssh server, as it was pinned at the first connection
	HookSecret []byte // sealed; signs push hooks

	StatusProvider string // github, gitlab or gitea; "" without commit statuses
	StatusToken    []byte // sealed

	Paused    bool
	CreatedAt time.Time

	// Version grows with every change by a management call. It is the ETag. The result of a sync
	// that read another version is not stored.
	Version int64

	RepositorySync
}

// RepositorySync is the results of the syncs of a repository.
type RepositorySync struct {
	LastCommit    string // whose file is the gateway's newest push from the repository
	FailedCommit  string // whose file cannot be pushed: it is not tried again by itself
	LastError     string // of the last sync; "" if it succeeded
	FailureKind   string // of a failure without a commit: a run of failures of one kind raises one event
	Failures      int    // in a row, without a commit
	Warning       string // of the last commit status
	Notified      []string
	LastAttemptAt time.Time // the last poll began
	LastSyncedAt  time.Time // last time at which the gateway was what the repository says, or was made so
	NextSyncAt    time.Time
}

// RepositoryState is the state of a connected repository in the API.
type RepositoryState string

// The states of a connected repository.
const (
	RepositoryOK      RepositoryState = "ok"
	RepositoryError   RepositoryState = "error"
	RepositorySyncing RepositoryState = "syncing" // also before the first sync
	RepositoryPaused  RepositoryState = "paused"
)

// State returns the state of r. running says that it is being synced.
func (r *ConnectedRepository) State(running bool) RepositoryState {
	switch {
	case r.Paused:
		return RepositoryPaused
	case running, r.LastAttemptAt.IsZero():
		return RepositorySyncing
	case r.LastError != "":
		return RepositoryError
	default:
		return RepositoryOK
	}
}

// The interval of the polls of a repository.
const (
	DefaultRepositoryInterval = "60s"
	minRepositoryInterval     = 10 * time.Second
	maxRepositoryInterval     = 24 * time.Hour
)

// IntervalOf returns the interval of r, which CheckKindAndInterval has accepted.
func (r *ConnectedRepository) IntervalOf() time.Duration {
	d, err := time.ParseDuration(r.Interval)
	if err != nil {
		return minRepositoryInterval
	}
	return max(d, minRepositoryInterval)
}

// Notice adds a commit to the last commits for which an event was raised. It returns false if the
// commit is among them already.
func (r *RepositorySync) Notice(commit string) bool {
	const kept = 32
	if slices.Contains(r.Notified, commit) {
		return false
	}
	r.Notified = append(slices.Clone(r.Notified[max(0, len(r.Notified)-kept+1):]), commit)
	return true
}

// CheckKindAndInterval checks the kind of document and the interval of a repository. The error is
// a validation error of the fields that are wrong.
func CheckKindAndInterval(kind DocumentKind, interval string) error {
	var badKind, badInterval error
	if kind != SpecDocument && kind != ConfigDocument {
		badKind = fault.Invalid("kind", "must be spec or config")
	}
	d, err := time.ParseDuration(interval)
	if err != nil || d < minRepositoryInterval || d > maxRepositoryInterval {
		badInterval = fault.Invalid("interval", "must be a duration between 10s and 24h, such as 60s or 5m")
	}
	return fault.Join(badKind, badInterval)
}
