package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
)

type putRepositoryRequest struct {
	URL          string                      `json:"url" minLength:"1" maxLength:"2048" doc:"URL of the repository: https, ssh (also in the form git@host:path), or file where the operator allows it. It has no userinfo. Another URL drops the credential, the token for commit statuses and the pinned host key." example:"https://git.example.com/acme/api.git"`
	Branch       string                      `json:"branch" minLength:"1" maxLength:"255" doc:"Branch to follow." example:"main"`
	Path         string                      `json:"path" minLength:"1" maxLength:"1024" doc:"Path of one file in the repository." example:"api/openapi.yaml"`
	Kind         string                      `json:"kind" enum:"spec,config" doc:"spec for an OpenAPI document, config for a configuration file."`
	Interval     *string                     `json:"interval,omitempty" nullable:"true" minLength:"1" doc:"How often to look for a new commit: a Go duration of 10s to 24h. Default: 60s." example:"60s"`
	Credential   optional[credentialInput]   `json:"credential,omitempty" doc:"Credential for the Git server. If absent, or ***, the stored one stays; null removes it."`
	KnownHosts   *string                     `json:"known_hosts,omitempty" nullable:"true" maxLength:"65536" doc:"Lines of a known_hosts file, for ssh. Without them the host key is pinned at the first connection." example:"git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA…"`
	HostKey      optional[string]            `json:"host_key,omitempty" minLength:"1" maxLength:"255" doc:"Type and fingerprint that the host key of an ssh server must have. null forgets the pinned one, so that the key of the next connection is pinned; if absent, it stays." example:"ssh-ed25519 SHA256:uNiVztksCsDhcc0u9e8BrRJXOiRPmVW0PoPzAkEmIgk"`
	CommitStatus optional[commitStatusInput] `json:"commit_status,omitempty" doc:"Where to report the result of each new commit. If absent, it stays; null removes it."`
	HookSecret   *string                     `json:"hook_secret,omitempty" nullable:"true" enum:"auto" doc:"auto creates a new secret for push hooks, which the response shows once."`
}

type commitStatusInput struct {
	_        struct{} `nullable:"true"`
	Provider string   `json:"provider" enum:"github,gitlab,gitea" doc:"Software of the Git server."`
	Token    string   `json:"token" minLength:"1" maxLength:"4096" doc:"Token of its API that may set commit statuses; *** keeps the stored one." example:"***"`
}

// credentialInput is "***" or an object.
type credentialInput struct {
	keep   bool
	object credentialObject
}

type credentialObject struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Token    string `json:"token"`
	SSHKey   string `json:"ssh_key"`
}

// UnmarshalJSON decodes a value that the schema has accepted.
func (c *credentialInput) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		c.keep = true
		return nil
	}
	return unmarshal(data, &c.object)
}

// Schema returns the schema of both forms.
func (credentialInput) Schema(huma.Registry) *huma.Schema {
	property := func(doc, example string, most int) *huma.Schema {
		s := textSchema()
		s.MaxLength, s.Description, s.Examples = &most, doc, []any{example}
		return s
	}
	kept := textSchema()
	kept.Description, kept.Enum = "Keeps the stored credential.", []any{hidden}
	return &huma.Schema{OneOf: []*huma.Schema{kept, {
		Type: huma.TypeObject, AdditionalProperties: false, Properties: map[string]*huma.Schema{
			"username": property("User name, with password, for https.", "deploy", 255),
			"password": property("Password.", "an-app-password", 4096),
			"token":    property("Access token, for https.", "a-deploy-token", 4096),
			"ssh_key":  property("Private key in PEM without a passphrase, for ssh.", "-----BEGIN OPENSSH PRIVATE KEY-----…", 16<<10),
		},
	}, {Type: nullType}}}
}

// RepositoryRecord is the repository that a gateway follows. It is exported so that it can be
// embedded; see KeyRecord.
type RepositoryRecord struct {
	GatewayID     string              `json:"gateway_id" doc:"Gateway that follows the repository." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	URL           string              `json:"url" doc:"URL of the repository." example:"https://git.example.com/acme/api.git"`
	Branch        string              `json:"branch" doc:"Branch that is followed." example:"main"`
	Path          string              `json:"path" doc:"Path of the file in the repository." example:"api/openapi.yaml"`
	Kind          string              `json:"kind" enum:"spec,config" doc:"spec for an OpenAPI document, config for a configuration file."`
	Interval      string              `json:"interval" doc:"How often Keygate looks for a new commit, as a Go duration." example:"60s"`
	Credential    *string             `json:"credential" doc:"*** if there is a credential; null if there is none." example:"***"`
	KnownHosts    *string             `json:"known_hosts" doc:"Lines of a known_hosts file; null if there are none."`
	HostKey       *string             `json:"host_key" doc:"Type and fingerprint of the host key of the ssh server; null if it is not known." example:"ssh-ed25519 SHA256:uNiVztksCsDhcc0u9e8BrRJXOiRPmVW0PoPzAkEmIgk"`
	CommitStatus  *commitStatusRecord `json:"commit_status" doc:"Where the results of new commits are reported; null for nowhere."`
	State         string              `json:"state" enum:"ok,error,syncing,paused" doc:"ok: the gateway has the file of last_commit. error: see last_error. syncing: a sync is running. paused: a rollback paused the sync."`
	LastCommit    *string             `json:"last_commit" doc:"Commit whose file the gateway has; null before the first." example:"2f1c0e6a8d3b45978899aabbccddeeff00112233"`
	LastSyncedAt  *time.Time          `json:"last_synced_at" doc:"When the gateway was last known to have the file of the newest commit."`
	LastAttemptAt *time.Time          `json:"last_attempt_at" doc:"When Keygate last asked the Git server."`
	NextSyncAt    *time.Time          `json:"next_sync_at" doc:"When Keygate asks it again; null while the sync is paused."`
	LastError     *string             `json:"last_error" doc:"What is wrong with the newest commit, with file, line and column, or why the repository cannot be read; null if the last sync succeeded." example:"api/openapi.yaml:12:5: paths.orders: a path must start with a slash"`
	Warnings      []string            `json:"warnings" nullable:"false" doc:"What else went wrong, such as a commit status that could not be set."`
	CreatedAt     time.Time           `json:"created_at" doc:"When the gateway was connected with a repository."`
}

type commitStatusRecord struct {
	_        struct{} `nullable:"true"`
	Provider string   `json:"provider" enum:"github,gitlab,gitea" doc:"Software of the Git server."`
	Token    string   `json:"token" doc:"Always ***." example:"***"`
}

// putRepositoryRecord may hold the hook secret.
type putRepositoryRecord struct {
	RepositoryRecord
	HookSecret string `json:"hook_secret,omitempty" doc:"Secret for push hooks to POST /v1/hooks/git/{gateway_id}. It is returned only once: when the repository is connected, and when hook_secret was auto." example:"kgh_exampleexampleexampleexampleexampleexampl"`
}

type pushHookRecord struct {
	Started bool `json:"started" doc:"Whether a sync begins: false for another branch or another kind of event, and while the sync is paused."`
}

func presentRepository(r *control.Repository) RepositoryRecord {
	record := RepositoryRecord{
		GatewayID: r.GatewayID, URL: r.URL, Branch: r.Branch, Path: r.Path, Kind: string(r.Kind), Interval: r.Interval,
		KnownHosts: optionalText(r.KnownHosts), HostKey: optionalText(r.HostKey), State: string(r.State(r.Syncing)),
		LastCommit: optionalText(r.LastCommit), LastSyncedAt: optionalTime(r.LastSyncedAt), LastAttemptAt: optionalTime(r.LastAttemptAt),
		LastError: optionalText(r.LastError), Warnings: []string{}, CreatedAt: r.CreatedAt.UTC(),
	}
	if r.Credential != nil {
		record.Credential = optionalText(hidden)
	}
	if r.StatusProvider != "" {
		record.CommitStatus = &commitStatusRecord{Provider: r.StatusProvider, Token: hidden}
	}
	if !r.Paused {
		record.NextSyncAt = optionalTime(r.NextSyncAt)
	}
	if r.Warning != "" {
		record.Warnings = append(record.Warnings, r.Warning)
	}
	return record
}

func (a *API) repositoryOperations() []operation {
	record := reflect.TypeFor[RepositoryRecord]()
	const path = "/v1/gateways/{gateway_id}/repository"
	return []operation{{
		id: "getRepository", method: http.MethodGet, path: path, tag: "Repositories",
		summary: "Get the repository", description: "Returns the Git repository that the gateway follows, without its secrets. Without one the response is a 404.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getRepository,
	}, {
		id: "putRepository", method: http.MethodPut, path: path, tag: "Repositories",
		summary: "Connect a repository",
		description: "Makes the gateway follow one file of a branch of a Git repository, or replaces the settings, and begins a sync. " +
			"Each new commit is pushed like a document of its kind; one that is not valid changes nothing.",
		body: reflect.TypeFor[putRepositoryRequest](), ifMatch: true,
		success: http.StatusOK, result: reflect.TypeFor[putRepositoryRecord](), hasETag: true,
		run: takes(a.putRepository),
	}, {
		id: "deleteRepository", method: http.MethodDelete, path: path, tag: "Repositories",
		summary: "Disconnect the repository", description: "Ends that the gateway follows the repository. Its routes and revisions stay. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record,
		run: a.deleteRepository,
	}, {
		id: "syncRepository", method: http.MethodPost, path: path + "/sync", tag: "Repositories",
		summary: "Sync now",
		description: "Pushes the file of the newest commit, also if it was pushed before, and ends a pause. The response comes when the sync has ended, " +
			"or after 45 seconds; its state says what came of it. Takes no request body.",
		replayable: true, ifMatch: true, success: http.StatusOK, result: record, hasETag: true,
		run: a.syncRepository,
	}, {
		id: "resumeRepository", method: http.MethodPost, path: path + "/resume", tag: "Repositories",
		summary:     "Resume the sync",
		description: "Ends the pause after a rollback. The next new commit is pushed; the one that was pushed last is not pushed again. Takes no request body.",
		replayable:  true, ifMatch: true, success: http.StatusOK, result: record, hasETag: true,
		run: a.resumeRepository,
	}, {
		id: "receivePushHook", method: http.MethodPost, path: "/v1/hooks/git/{gateway_id}", tag: "Repositories",
		summary: "Receive a push hook",
		description: "Takes the push hooks of GitHub (X-Hub-Signature-256), Gitea and Forgejo (X-Gitea-Signature), which are signed with the hook secret, and of GitLab " +
			"(X-Gitlab-Token, which equals it), and begins a sync. It needs no API key. Anything else is a 401, whether or not the gateway exists.",
		public: true, hook: true, success: http.StatusOK, result: reflect.TypeFor[pushHookRecord](),
		errors: []int{http.StatusUnauthorized, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusBadRequest, http.StatusTooManyRequests, http.StatusServiceUnavailable},
		run:    a.receivePushHook,
	}}
}

func repositoryResponse(r *control.Repository) response {
	return withETag(presentRepository(r), r.Version)
}

func (a *API) getRepository(c *call) (response, error) {
	return respond(repositoryResponse)(a.cfg.Control.GetRepository(c.ctx, &c.actor, c.params["gateway_id"]))
}

func (a *API) putRepository(c *call, req putRepositoryRequest) (response, error) {
	in := control.RepositoryInput{
		URL: req.URL, Branch: req.Branch, Path: req.Path, Kind: req.Kind, Interval: value(req.Interval), KnownHosts: value(req.KnownHosts),
		HostKey: req.HostKey.Optional, NewHookSecret: req.HookSecret != nil,
	}
	in.Credential.Present, in.Credential.Null, in.Credential.Keep = req.Credential.Present, req.Credential.Null, req.Credential.Value.keep
	in.Credential.Value = control.RepositoryCredential(req.Credential.Value.object)
	in.CommitStatus.Present, in.CommitStatus.Null = req.CommitStatus.Present, req.CommitStatus.Null
	in.CommitStatus.Value = control.CommitStatus{Provider: req.CommitStatus.Value.Provider, Token: req.CommitStatus.Value.Token}
	r, err := a.cfg.Control.PutRepository(c.ctx, &c.actor, c.params["gateway_id"], in, c.match)
	if err != nil {
		return response{}, err
	}
	return withETag(putRepositoryRecord{RepositoryRecord: presentRepository(r), HookSecret: r.HookSecret}, r.Version), nil
}

func (a *API) deleteRepository(c *call) (response, error) {
	return show(presentRepository)(a.cfg.Control.DeleteRepository(c.ctx, &c.actor, c.params["gateway_id"], c.match))
}

func (a *API) syncRepository(c *call) (response, error) {
	return respond(repositoryResponse)(a.cfg.Control.SyncRepository(withIdempotency(c, repositoryResponse), &c.actor, c.params["gateway_id"], c.match))
}

func (a *API) resumeRepository(c *call) (response, error) {
	return respond(repositoryResponse)(a.cfg.Control.ResumeRepository(withIdempotency(c, repositoryResponse), &c.actor, c.params["gateway_id"], c.match))
}

// receivePushHook begins the sync that a hook asks for. c.admitHook has verified it.
func (a *API) receivePushHook(c *call) (response, error) {
	branch, isPush, err := c.pushedBranch()
	if err != nil {
		return response{}, err
	}
	started := isPush && !c.hook.Paused && (branch == "" || branch == c.hook.Branch)
	if started {
		a.cfg.Control.WakeRepository(c.hook.AccountID, c.params["gateway_id"])
	}
	return ok(pushHookRecord{Started: started}), nil
}

// errHook is the one error for every hook that cannot be verified.
func errHook() error {
	return &fault.Error{
		Code: fault.Unauthorized, Auth: fault.KeyInvalid,
		Message: "the hook is not signed with the hook secret of a repository that this gateway follows",
	}
}
