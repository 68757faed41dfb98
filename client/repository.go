package client

import (
	"context"
	"net/http"
)

// RepositoryInput is the body of PutRepository (contract, section 5). Fields without a Change keep
// what is stored.
type RepositoryInput struct {
	URL        string `json:"url"`                   // https, ssh (also git@host:path), or file where the operator allows it
	Branch     string `json:"branch"`                // short name, such as main
	Path       string `json:"path"`                  // of one file in the repository
	Kind       string `json:"kind"`                  // spec or config
	Interval   string `json:"interval,omitempty"`    // Go duration, 10s to 24h; default: 60s
	KnownHosts string `json:"known_hosts,omitempty"` // lines of a known_hosts file, for ssh; default: the first host key is pinned

	HostKey      Change[string]               `json:"host_key,omitzero"`      // SHA256 fingerprint; cleared: pin the key of the next connection
	Credential   Change[RepositoryCredential] `json:"credential,omitzero"`    // replaced as a whole; dropped with another URL
	CommitStatus Change[CommitStatusInput]    `json:"commit_status,omitzero"` // replaced as a whole; dropped with another URL
	HookSecret   Change[string]               `json:"hook_secret,omitzero"`   // auto: create a new one
}

// RepositoryCredential is what a Git server is shown: Username and Password, or Token, or SSHKey.
type RepositoryCredential struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Token    string `json:"token,omitempty"`
	SSHKey   string `json:"ssh_key,omitempty"` // PEM, without a passphrase
}

// CommitStatusInput says where the results of new commits are reported.
type CommitStatusInput struct {
	Provider string `json:"provider"` // github, gitlab or gitea
	Token    string `json:"token"`    // *** keeps the stored one
}

// PutRepository is a repository as PutRepository returns it.
type PutRepository struct {
	Repository
	// HookSecret signs push hooks. It is set only if the gateway has just been connected, or if
	// HookSecret of the input was auto. No other call returns it.
	HookSecret string `json:"hook_secret,omitempty"`
}

func repositoryPath(gatewayID string) string { return gatewayPath(gatewayID) + "/repository" }

// Repository returns the Git repository that a gateway follows. Without one it returns an *Error
// with status 404.
func (c *Client) Repository(ctx context.Context, gatewayID string) (*Repository, error) {
	return call[Repository](ctx, c, http.MethodGet, repositoryPath(gatewayID), nil)
}

// PutRepository makes a gateway follow a repository, or replaces the settings.
func (c *Client) PutRepository(ctx context.Context, gatewayID string, in RepositoryInput) (*PutRepository, error) {
	return call[PutRepository](ctx, c, http.MethodPut, repositoryPath(gatewayID), in)
}

// DeleteRepository makes a gateway stop following its repository. Its routes and revisions stay. It
// returns the record as it was before.
func (c *Client) DeleteRepository(ctx context.Context, gatewayID string) (*Repository, error) {
	return call[Repository](ctx, c, http.MethodDelete, repositoryPath(gatewayID), nil)
}

// SyncRepository pushes the file of the newest commit, even if it was pushed before, and ends a
// pause. It returns when the sync has ended, or after 45 seconds. State and LastError have the
// result.
func (c *Client) SyncRepository(ctx context.Context, gatewayID string) (*Repository, error) {
	return call[Repository](ctx, c, http.MethodPost, repositoryPath(gatewayID)+"/sync", nil)
}

// ResumeRepository ends the pause after a rollback.
func (c *Client) ResumeRepository(ctx context.Context, gatewayID string) (*Repository, error) {
	return call[Repository](ctx, c, http.MethodPost, repositoryPath(gatewayID)+"/resume", nil)
}
