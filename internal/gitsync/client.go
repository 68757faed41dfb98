package gitsync

import (
	"errors"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/repository"
)

// badCommit reports whether err, from reading a commit, is due to the commit's content, so that
// reading fails until there is another commit. A repository that is too large counts too, because
// receiving it again and again would cost its server and this one. message is safe to show.
func badCommit(err error) (message string, bad bool) {
	var e *repository.Error
	if !errors.As(err, &e) {
		return "", false
	}
	return e.Message, e.Kind.OfCommit() || e.Kind == repository.TooLarge
}

// statusError returns what may be shown of an error of a commit status.
func statusError(err error) string {
	var e *repository.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return "the Git server did not answer as it should"
}

// Check implements control.RepositorySyncer.
func (s *Syncer) Check(source control.RepositorySource) error {
	allow := ""
	if source.Operator {
		allow = s.cfg.AllowFile
	}
	var badHosts error
	if source.KnownHosts != "" {
		badHosts = repository.CheckKnownHosts(source.KnownHosts)
	}
	return fault.Join(repository.CheckURL(source.URL, allow), repository.CheckBranch(source.Branch), repository.CheckPath(source.Path),
		repository.CheckCredential(source.URL, repository.Credential(source.Credential)), badHosts)
}
