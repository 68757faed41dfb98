package control

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// RepositorySyncer keeps gateways in step with the Git repositories that they follow
// (gitsync.Syncer). It is safe for concurrent use.
type RepositorySyncer interface {
	// Check checks what is to be read. The error is a validation error of all fields that are wrong.
	Check(source RepositorySource) error
	// Changed takes note that the repository of a gateway was connected, changed or removed. A sync
	// that is running stops, and one with the new settings begins soon. It does not block.
	Changed(accountID, gatewayID string)
	// Wake begins a sync soon, as for a push hook. It does not block.
	Wake(accountID, gatewayID string)
	// Sync syncs a gateway even if the commit is known. It returns when a sync that began after the
	// call has ended, or with ctx.Err().
	Sync(ctx context.Context, accountID, gatewayID string) error
	// Running reports whether a sync of the gateway is running.
	Running(gatewayID string) bool
}

// RepositorySource is what a gateway is to follow, as a user wrote it.
type RepositorySource struct {
	URL, Branch, Path string
	Credential        RepositoryCredential // the zero value if no new one is given
	KnownHosts        string               // "" if there are none
	Operator          bool                 // the account is default
}

// RepositoryCredential is what a Git server is shown: a username and a password, a token, or a
// private ssh key in PEM.
type RepositoryCredential struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Token    string `json:"token,omitempty"`
	SSHKey   string `json:"ssh_key,omitempty"`
}

// RepositoryInput is the body of PutRepository. Texts are as the user wrote them.
type RepositoryInput struct {
	URL, Branch, Path, Kind string
	Interval                string // "" means the default
	KnownHosts              string
	HostKey                 Optional[string] // null forgets the pinned key
	Credential              RepositorySecret[RepositoryCredential]
	CommitStatus            RepositorySecret[CommitStatus]
	NewHookSecret           bool
}

// RepositorySecret is a secret of a RepositoryInput. An absent secret stays as it is, unless the URL changes.
type RepositorySecret[T any] struct {
	Optional[T]
	Keep bool // given as "***"
}

// CommitStatus says where the results of syncs are reported. Token "***" keeps the stored one.
type CommitStatus struct{ Provider, Token string }

// Kept is what the API shows instead of a secret, and what a call sends to keep it.
const Kept = "***"

// Repository is a connected repository with what is known besides its record.
type Repository struct {
	gateway.ConnectedRepository
	Syncing    bool
	HookSecret string // only in the result of the PutRepository that created it
}

// maxStatusToken is the length of a token for commit statuses, in bytes.
const maxStatusToken = 4096

// GetRepository returns the repository that a gateway follows.
func (s *Service) GetRepository(ctx context.Context, actor *Actor, gatewayID string) (*Repository, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*Repository, error) {
		r, err := repository(ctx, tx, actor, gatewayID)
		return s.present(r), err
	})
}

// repository returns the repository of a gateway of the actor's account.
func repository(ctx context.Context, tx ReadTx, actor *Actor, gatewayID string) (*gateway.ConnectedRepository, error) {
	if _, err := tx.Gateway(ctx, actor.Account.ID, gatewayID); err != nil {
		return nil, err
	}
	return tx.Repository(ctx, actor.Account.ID, gatewayID)
}

// present returns r as callers see it; nil for nil.
func (s *Service) present(r *gateway.ConnectedRepository) *Repository {
	if r == nil {
		return nil
	}
	return &Repository{ConnectedRepository: *r, Syncing: s.cfg.Repositories != nil && s.cfg.Repositories.Running(r.GatewayID)}
}

// PutRepository connects a gateway with a repository, or replaces its settings, and begins a sync.
// A new URL drops the credential, the token for commit statuses and the pinned host key, unless in
// gives new ones. If the gateway gets a new hook secret, the result has it.
func (s *Service) PutRepository(ctx context.Context, actor *Actor, gatewayID string, in RepositoryInput, m Match) (*Repository, error) {
	if s.cfg.Repositories == nil {
		return nil, fault.New(fault.Unavailable, "this server does not sync repositories")
	}
	if err := actor.check(); err != nil {
		return nil, err
	}
	if err := s.checkRepository(actor, &in); err != nil {
		return nil, err
	}
	edit, err := s.sealRepository(&in)
	if err != nil {
		return nil, err
	}
	result, err := inTx(ctx, s, actor, func(w *work) (*Repository, error) {
		before, err := repository(ctx, w, actor, gatewayID)
		isNew := fault.CodeOf(err) == fault.NotFound
		if isNew {
			if _, missing := w.Gateway(ctx, actor.Account.ID, gatewayID); missing != nil {
				return nil, missing
			}
			before = nil
		} else if err != nil {
			return nil, err
		}
		if err := requireRepository(m, before); err != nil {
			return nil, err
		}
		after, err := edit.apply(before, &in)
		if err != nil {
			return nil, err
		}
		result := &Repository{Syncing: true}
		if isNew {
			after.GatewayID, after.AccountID, after.CreatedAt, after.Version = gatewayID, actor.Account.ID, w.now, 1
		}
		if isNew || in.NewHookSecret {
			result.HookSecret = edit.hookSecret
			after.HookSecret = edit.sealedHook
		}
		diff := repositoryDiff(before, after)
		if !isNew && len(diff) > 0 {
			after.Version = before.Version + 1
		}
		if err := w.PutRepository(ctx, after); err != nil {
			return nil, err
		}
		result.ConnectedRepository = *after
		if len(diff) == 0 {
			return result, nil
		}
		return result, w.audit(ctx, audit.RepositorySet, gatewayID, gatewayID, diff)
	})
	if err == nil {
		s.cfg.Repositories.Changed(actor.Account.ID, gatewayID)
	}
	return result, err
}

// requireRepository is require for a record that may not exist yet.
func requireRepository(m Match, before *gateway.ConnectedRepository) error {
	if before == nil {
		if m == nil {
			return nil
		}
		return fault.New(fault.PreconditionFailed, "the gateway follows no repository, so there is no ETag to match: repeat the call without If-Match")
	}
	return require(m, before.Version)
}

// checkRepository checks what can be checked without the present record.
func (s *Service) checkRepository(actor *Actor, in *RepositoryInput) error {
	in.Interval = cmp.Or(in.Interval, gateway.DefaultRepositoryInterval)
	source := RepositorySource{URL: in.URL, Branch: in.Branch, Path: in.Path, KnownHosts: in.KnownHosts, Operator: actor.Account.IsDefault()}
	var badCredential, badStatus, badKey error
	if in.Credential.Present && !in.Credential.Null && !in.Credential.Keep {
		if source.Credential = in.Credential.Value; source.Credential == (RepositoryCredential{}) {
			badCredential = fault.Invalid("credential", "must have token, or username and password, or ssh_key")
		}
	}
	if cs := &in.CommitStatus; cs.Present && !cs.Null {
		badStatus = checkCommitStatus(&cs.Value)
	}
	if key := &in.HostKey; key.Present && !key.Null && (!strings.Contains(key.Value, "SHA256:") || strings.ContainsFunc(key.Value, unicode.IsControl)) {
		badKey = fault.Invalid("host_key", "must be the type and the SHA256 fingerprint of a host key, as the record shows it, or null to pin the key of the next connection")
	}
	return fault.Join(s.cfg.Repositories.Check(source), gateway.CheckKindAndInterval(gateway.DocumentKind(in.Kind), in.Interval), badCredential, badKey, badStatus)
}

// checkCommitStatus checks where results are reported. The error does not contain the token.
func checkCommitStatus(c *CommitStatus) error {
	var badProvider, badToken error
	switch c.Provider {
	case "github", "gitlab", "gitea":
	default:
		badProvider = fault.Invalid("commit_status.provider", "must be github, gitlab or gitea")
	}
	if c.Token == "" || len(c.Token) > maxStatusToken || strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		badToken = fault.Invalid("commit_status.token", "must have 1 to %d printable ASCII characters, without spaces", maxStatusToken)
	}
	return fault.Join(badProvider, badToken)
}

// repositoryEdit holds the sealed secrets of a RepositoryInput.
type repositoryEdit struct {
	credential, statusToken, sealedHook []byte
	hookSecret                          string
}

// hookSecretTag is the beginning of hook secrets, by which they can be recognized.
const hookSecretTag = "kgh_"

func (s *Service) sealRepository(in *RepositoryInput) (e repositoryEdit, err error) {
	if c := &in.Credential; c.Present && !c.Null && !c.Keep {
		content, err := json.Marshal(c.Value) //nolint:gosec // it is sealed
		if err != nil {
			return e, fmt.Errorf("encode a credential: %w", err)
		}
		if e.credential, err = s.cfg.Sealer.Seal(content); err != nil {
			return e, fmt.Errorf("seal a credential: %w", err)
		}
	}
	if c := &in.CommitStatus; c.Present && !c.Null && c.Value.Token != Kept {
		if e.statusToken, err = s.cfg.Sealer.Seal([]byte(c.Value.Token)); err != nil {
			return e, fmt.Errorf("seal a token for commit statuses: %w", err)
		}
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails: the program ends instead
	e.hookSecret = hookSecretTag + base64.RawURLEncoding.EncodeToString(random)
	if e.sealedHook, err = s.cfg.Sealer.Seal([]byte(e.hookSecret)); err != nil {
		return e, fmt.Errorf("seal a hook secret: %w", err)
	}
	return e, nil
}

// apply returns the record after the change; before is nil if there is none.
func (e *repositoryEdit) apply(before *gateway.ConnectedRepository, in *RepositoryInput) (*gateway.ConnectedRepository, error) {
	r := &gateway.ConnectedRepository{}
	if before != nil {
		*r = *before
	}
	sameURL := r.URL == in.URL
	sameFile := sameURL && r.Branch == in.Branch && r.Path == in.Path && string(r.Kind) == in.Kind
	r.URL, r.Branch, r.Path, r.Kind = in.URL, in.Branch, in.Path, gateway.DocumentKind(in.Kind)
	r.Interval, r.KnownHosts = in.Interval, in.KnownHosts
	if !sameURL {
		// Secrets for one server are not sent to another.
		r.Credential, r.StatusProvider, r.StatusToken, r.HostKey = nil, "", nil, ""
	}
	if sameFile {
		r.FailedCommit, r.LastError, r.FailureKind, r.Failures, r.Warning = "", "", "", 0, ""
	} else {
		r.RepositorySync = gateway.RepositorySync{}
	}
	if in.HostKey.Present {
		r.HostKey = in.HostKey.Value // "" for null
	}
	switch c := &in.Credential; {
	case c.Keep && r.Credential == nil:
		return nil, fault.Invalid("credential", `there is no credential of this URL that "***" could keep: give it`)
	case c.Present && !c.Keep:
		r.Credential = e.credential // nil for null
	}
	switch c := &in.CommitStatus; {
	case !c.Present:
	case c.Null:
		r.StatusProvider, r.StatusToken = "", nil
	case c.Value.Token == Kept && (r.StatusToken == nil || r.StatusProvider != c.Value.Provider):
		return nil, fault.Invalid("commit_status.token", `there is no token of this URL and provider that "***" could keep: give it`)
	default:
		r.StatusProvider = c.Value.Provider
		if c.Value.Token != Kept {
			r.StatusToken = e.statusToken
		}
	}
	return r, nil
}

// DeleteRepository makes a gateway stop following its repository. Its routes and revisions stay. It
// returns the record as it was.
func (s *Service) DeleteRepository(ctx context.Context, actor *Actor, gatewayID string, m Match) (*Repository, error) {
	result, err := inTx(ctx, s, actor, func(w *work) (*Repository, error) {
		r, err := w.repositoryToChange(ctx, gatewayID, m)
		if err != nil {
			return nil, err
		}
		if err := w.DeleteRepository(ctx, actor.Account.ID, gatewayID); err != nil {
			return nil, err
		}
		return &Repository{ConnectedRepository: *r}, w.audit(ctx, audit.RepositoryDelete, gatewayID, gatewayID, repositoryDiff(r, nil))
	})
	if err == nil && s.cfg.Repositories != nil {
		s.cfg.Repositories.Changed(actor.Account.ID, gatewayID)
	}
	return result, err
}

// ResumeRepository ends a pause, and begins a sync, which pushes only what was committed since the
// last sync.
func (s *Service) ResumeRepository(ctx context.Context, actor *Actor, gatewayID string, m Match) (*Repository, error) {
	result, err := inTx(ctx, s, actor, func(w *work) (*Repository, error) {
		r, err := w.repositoryToChange(ctx, gatewayID, m)
		if err != nil {
			return nil, err
		}
		if err := w.setPaused(ctx, r, false, audit.RepositoryResume); err != nil {
			return nil, err
		}
		return s.present(r), nil
	})
	if err == nil && s.cfg.Repositories != nil {
		s.cfg.Repositories.Wake(actor.Account.ID, gatewayID)
	}
	return result, err
}

// repositorySyncWithin is how long a call waits for its sync.
const repositorySyncWithin = 45 * time.Second

// SyncRepository ends a pause and pushes the file of the newest commit, even if it was pushed before. It returns the
// record when the sync has ended, whatever its result, or after 45 seconds, which is less than clients wait.
func (s *Service) SyncRepository(ctx context.Context, actor *Actor, gatewayID string, m Match) (*Repository, error) {
	if s.cfg.Repositories == nil {
		return nil, fault.New(fault.Unavailable, "this server does not sync repositories")
	}
	_, err := inTxOnly(ctx, s, actor, func(w *work) (struct{}, error) {
		r, err := w.repositoryToChange(ctx, gatewayID, m)
		if err != nil {
			return struct{}{}, err
		}
		if r.Paused {
			return struct{}{}, w.setPaused(ctx, r, false, audit.RepositorySync)
		}
		return struct{}{}, w.audit(ctx, audit.RepositorySync, gatewayID, gatewayID, nil)
	})
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, repositorySyncWithin)
	defer cancel()
	if err := s.cfg.Repositories.Sync(wait, actor.Account.ID, gatewayID); err != nil && ctx.Err() != nil {
		return nil, err // the caller hung up
	}
	if idempotencyOf(ctx) == nil {
		return s.GetRepository(ctx, actor, gatewayID)
	}
	return inTx(ctx, s, actor, func(w *work) (*Repository, error) {
		r, err := repository(ctx, w, actor, gatewayID)
		return s.present(r), err
	})
}

// auditRepositoryOf records the end of the repository of a gateway that is about to be deleted.
func (w *work) auditRepositoryOf(ctx context.Context, gatewayID string) error {
	r, err := w.Repository(ctx, w.actor.Account.ID, gatewayID)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return w.audit(ctx, audit.RepositoryDelete, gatewayID, gatewayID, repositoryDiff(r, nil))
}

// repositoryToChange returns the repository of a gateway if its version satisfies m.
func (w *work) repositoryToChange(ctx context.Context, gatewayID string, m Match) (*gateway.ConnectedRepository, error) {
	r, err := repository(ctx, w, w.actor, gatewayID)
	if err != nil {
		return nil, err
	}
	return r, require(m, r.Version)
}

// setPaused pauses the sync of r or ends the pause, with an audit record. It does nothing if r is
// in that state already.
func (w *work) setPaused(ctx context.Context, r *gateway.ConnectedRepository, paused bool, a audit.Action) error {
	if r.Paused == paused {
		return nil
	}
	diff := audit.Diff{"paused": [2]any{r.Paused, paused}}
	r.Paused = paused
	r.Version++
	if err := w.PutRepository(ctx, r); err != nil {
		return err
	}
	return w.audit(ctx, a, r.GatewayID, r.GatewayID, diff)
}

// pauseRepository pauses the sync of a gateway that follows a repository, because it was rolled back.
func (w *work) pauseRepository(ctx context.Context, gatewayID string) error {
	r, err := w.Repository(ctx, w.actor.Account.ID, gatewayID)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return w.setPaused(ctx, r, true, audit.RepositoryPause)
}

// What a push says about a repository that the gateway follows.
const (
	warnPaused  = "the gateway follows a Git repository: its sync is paused until you resume it, or sync it"
	warnFollows = "the gateway follows a Git repository: its next commit replaces what is pushed now"
)

// repositoryWarning returns the warning of a push to a gateway that follows a repository, or "".
func repositoryWarning(ctx context.Context, tx RepositoryReader, actor *Actor, gatewayID string, doc *document) (string, error) {
	r, err := tx.Repository(ctx, actor.Account.ID, gatewayID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return "", nil
	case err != nil:
		return "", err
	case doc.rollback:
		return warnPaused, nil
	case doc.commit != "", r.Paused:
		return "", nil
	default:
		return warnFollows, nil
	}
}

// repositoryDiff shows secrets as "***"; a changed secret shows as a pair of them.
func repositoryDiff(before, after *gateway.ConnectedRepository) audit.Diff {
	d := differ(repositoryFields(before), repositoryFields(after))
	if before == nil || after == nil {
		return d
	}
	for name, secrets := range map[string][2][]byte{
		"credential": {before.Credential, after.Credential}, "hook_secret": {before.HookSecret, after.HookSecret},
		"commit_status.token": {before.StatusToken, after.StatusToken},
	} {
		if secrets[0] != nil && secrets[1] != nil && !bytes.Equal(secrets[0], secrets[1]) {
			d[name] = [2]any{Kept, Kept}
		}
	}
	return d
}

func repositoryFields(r *gateway.ConnectedRepository) fields {
	if r == nil {
		return nil
	}
	return fields{
		"url": r.URL, "branch": r.Branch, "path": r.Path, "kind": string(r.Kind), "interval": r.Interval,
		"credential": keptOrNil(r.Credential), "known_hosts": digestOrNil(r.KnownHosts), "host_key": orNil(r.HostKey),
		"hook_secret": keptOrNil(r.HookSecret), "commit_status.provider": orNil(r.StatusProvider),
		"commit_status.token": keptOrNil(r.StatusToken),
	}
}

func keptOrNil(secret []byte) any {
	if secret == nil {
		return nil
	}
	return Kept
}
