package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newRepo(a *app) *cobra.Command {
	return newGroup("repo", "Follow a Git repository: each commit is pushed to the gateway",
		newRepoGet(a), newRepoSet(a), newRepoSync(a), newRepoResume(a), newRepoRemove(a))
}

type repoSet struct {
	*app
	gateway                                      string
	url, branch, path, kind, interval            string
	username, passwordFile, tokenFile, keyFile   string
	knownHosts, statusProvider, statusTokenFile  string
	noCredential, noStatus, newHook, forgetHosts bool
}

func newRepoSet(a *app) *cobra.Command {
	o := &repoSet{app: a}
	c := &cobra.Command{
		Use:   "set --gateway ID --repository URL --path FILE",
		Short: "Connect a gateway with a Git repository, or change the settings",
		Long: `Make a gateway follow one file of a branch of a Git repository: an OpenAPI
document, or with --kind config a configuration file. Each new commit is pushed; one that
is not valid changes nothing. What is not given stays as it is.

Secrets are read from files, or with - from standard input. Another URL drops the
credential and the token for commit statuses.

When the gateway is connected, and with --hook-secret, a secret for push hooks is shown
once. Enter it and the address of the hook on the Git server, so that a push is in force
at once.`,
		Example: `  keygate repo set --gateway orders --repository https://git.example.com/acme/api.git --path openapi.yaml --token-file token.txt
  keygate repo set --gateway orders --interval 5m`,
		Args: noArgs,
		RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	f.StringVar(&o.url, "repository", "", "`url` of the repository: https, ssh or git@host:path")
	f.StringVar(&o.branch, "branch", "", "`branch` to follow (default main)")
	f.StringVar(&o.path, "path", "", "`path` of the document in the repository")
	f.StringVar(&o.kind, "kind", "", "`kind` of the document: spec or config (default spec)")
	f.StringVar(&o.interval, "interval", "", "`duration` between two looks for a new commit, 10s to 24h (default 60s)")
	f.StringVar(&o.username, "username", "", "user `name` for https, with --password-file")
	f.StringVar(&o.passwordFile, "password-file", "", "`file` with the password, or - for standard input")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with an access token for https, or - for standard input")
	f.StringVar(&o.keyFile, "ssh-key-file", "", "`file` with a private key for ssh, without a passphrase")
	f.BoolVar(&o.noCredential, "no-credential", false, "remove the credential")
	f.StringVar(&o.knownHosts, "known-hosts", "", "`file` with the host keys of the server, as ssh-keyscan prints them (default: the first one is pinned)")
	f.BoolVar(&o.forgetHosts, "forget-host-key", false, "pin the host key of the next connection in place of the present one")
	f.StringVar(&o.statusProvider, "status-provider", "", "`software` of the server whose commits get a status: github, gitlab or gitea")
	f.StringVar(&o.statusTokenFile, "status-token-file", "", "`file` with a token that may set commit statuses, or - for standard input")
	f.BoolVar(&o.noStatus, "no-status", false, "set no more commit statuses")
	f.BoolVar(&o.newHook, "hook-secret", false, "create a new secret for push hooks")
	return c
}

func (o *repoSet) run(c *cobra.Command, _ []string) error {
	if err := noneEmpty(c); err != nil {
		return err
	}
	if err := o.checkFlags(); err != nil {
		return err
	}
	in := client.RepositoryInput{URL: o.url, Branch: o.branch, Path: o.path, Kind: o.kind, Interval: o.interval}
	if err := o.readSecrets(&in); err != nil {
		return err
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	if err := complete(c.Context(), api, o.gateway, &in); err != nil {
		return err
	}
	r, err := api.PutRepository(c.Context(), o.gateway, in)
	if err != nil {
		return err
	}
	if err := o.PrintRecord(r, func() []terminal.Field {
		return append(repositoryFields(&r.Repository), filled(terminal.Field{"HOOK SECRET", r.HookSecret})...)
	}); err != nil {
		return err
	}
	if r.HookSecret != "" {
		o.Say("For push hooks of the Git server: POST to /v1/hooks/git/%s of the management API, as JSON, signed with this secret.", terminal.Clean(r.GatewayID))
		o.remindToSave("hook secret")
	}
	return nil
}

// checkFlags refuses flags that contradict each other.
func (o *repoSet) checkFlags() error {
	given := 0
	for _, f := range []string{o.passwordFile, o.tokenFile, o.keyFile} {
		if f != "" {
			given++
		}
	}
	switch {
	case given > 1, given > 0 && o.noCredential:
		return usagef("give only one of --password-file, --token-file, --ssh-key-file and --no-credential")
	case (o.username != "") != (o.passwordFile != ""):
		return usagef("--username and --password-file belong together")
	case (o.statusProvider != "") != (o.statusTokenFile != ""):
		return usagef("--status-provider and --status-token-file belong together")
	case o.statusProvider != "" && o.noStatus:
		return usagef("give only one of --status-provider and --no-status")
	case o.statusTokenFile == "-" && (o.passwordFile == "-" || o.tokenFile == "-"):
		return usagef("only one secret can be read from standard input: put the other one into a file")
	}
	return nil
}

// readSecrets reads the files that flags name.
func (o *repoSet) readSecrets(in *client.RepositoryInput) error {
	read := func(file, what string) (string, error) {
		content, err := o.ReadInput(file)
		if err != nil {
			return "", fmt.Errorf("read the %s: %w", what, err)
		}
		if len(strings.TrimSpace(string(content))) == 0 {
			return "", usagef("no %s was given: %s is empty", what, file)
		}
		return string(content), nil
	}
	var cred client.RepositoryCredential
	for _, one := range []struct {
		file, what string
		to         *string
	}{{o.passwordFile, "password", &cred.Password}, {o.tokenFile, "token", &cred.Token}, {o.keyFile, "ssh key", &cred.SSHKey}} {
		if one.file == "" {
			continue
		}
		content, err := read(one.file, one.what)
		if err != nil {
			return err
		}
		if one.what != "ssh key" { // editors add the end of the line
			content = strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r")
		}
		*one.to = content
		cred.Username = o.username
		in.Credential = client.Set(cred)
	}
	if o.noCredential {
		in.Credential = client.Clear[client.RepositoryCredential]()
	}
	if o.knownHosts != "" {
		content, err := os.ReadFile(o.knownHosts)
		if err != nil {
			return fmt.Errorf("read the host keys: %w", err)
		}
		in.KnownHosts = string(content)
	}
	if o.forgetHosts {
		in.HostKey = client.Clear[string]()
	}
	if o.statusTokenFile != "" {
		token, err := read(o.statusTokenFile, "token for commit statuses")
		if err != nil {
			return err
		}
		in.CommitStatus = client.Set(client.CommitStatusInput{Provider: o.statusProvider, Token: strings.TrimSpace(token)})
	}
	if o.noStatus {
		in.CommitStatus = client.Clear[client.CommitStatusInput]()
	}
	if o.newHook {
		in.HookSecret = client.Set("auto")
	}
	return nil
}

// complete fills in what was not given: the present settings, or the defaults.
func complete(ctx context.Context, api *client.Client, gatewayID string, in *client.RepositoryInput) error {
	present, err := api.Repository(ctx, gatewayID)
	var failed *client.Error
	switch {
	case errors.As(err, &failed) && failed.Status == http.StatusNotFound:
		if err := errors.Join(required("repository", in.URL), required("path", in.Path)); err != nil {
			return usagef("%s", err)
		}
		in.Branch, in.Kind = cmp.Or(in.Branch, "main"), cmp.Or(in.Kind, "spec")
		return nil
	case err != nil:
		return err
	}
	in.URL, in.Branch, in.Path = cmp.Or(in.URL, present.URL), cmp.Or(in.Branch, present.Branch), cmp.Or(in.Path, present.Path)
	in.Kind, in.Interval = cmp.Or(in.Kind, string(present.Kind)), cmp.Or(in.Interval, present.Interval)
	if in.URL == present.URL {
		in.KnownHosts = cmp.Or(in.KnownHosts, str(present.KnownHosts))
	}
	return nil
}

func repositoryFields(r *client.Repository) []terminal.Field {
	fields := []terminal.Field{
		{"GATEWAY ID", r.GatewayID}, {"URL", r.URL}, {"BRANCH", r.Branch}, {"PATH", r.Path}, {"KIND", string(r.Kind)},
		{"INTERVAL", r.Interval}, {"CREDENTIAL", cmp.Or(str(r.Credential), "none")},
	}
	fields = append(fields, filled(terminal.Field{"HOST KEY", str(r.HostKey)})...)
	if r.CommitStatus != nil {
		fields = append(fields, terminal.Field{"COMMIT STATUS", string(r.CommitStatus.Provider)})
	}
	fields = append(fields, terminal.Field{"STATE", string(r.State)}, terminal.Field{"LAST COMMIT", str(r.LastCommit)}, terminal.Field{"LAST SYNCED", terminal.Moment(r.LastSyncedAt)},
		terminal.Field{"LAST ATTEMPT", terminal.Moment(r.LastAttemptAt)}, terminal.Field{"NEXT SYNC", terminal.Moment(r.NextSyncAt)})
	fields = append(fields, filled(terminal.Field{"LAST ERROR", str(r.LastError)})...)
	for _, w := range r.Warnings {
		fields = append(fields, terminal.Field{"WARNING", w})
	}
	return fields
}

func newRepoGet(a *app) *cobra.Command {
	return shows(defaultGatewayOr(a), &cobra.Command{Use: "get [GATEWAY_ID]", Short: "Show the repository that a gateway follows, and its state"},
		(*client.Client).Repository, repositoryFields)
}

func newRepoSync(a *app) *cobra.Command {
	o := defaultGatewayOr(a)
	c := &cobra.Command{
		Use: "sync [GATEWAY_ID]", Short: "Push the newest commit now, and end a pause",
		Long: "Push the file of the newest commit now, also if it was pushed before, and end a pause. The command waits for the result; its exit status is 6 for a commit that cannot be pushed or a repository that cannot be read.",
	}
	return o.runs(c, func(ctx context.Context, api *client.Client, id string) error {
		r, err := api.SyncRepository(ctx, id)
		if err != nil {
			return err
		}
		if err := show(a, r, repositoryFields); err != nil {
			return err
		}
		if r.LastError != nil {
			return &syncError{terminal.Clean(*r.LastError)}
		}
		return nil
	})
}

// syncError is a sync that changed nothing.
type syncError struct{ message string }

func (e *syncError) Error() string { return e.message }

func newRepoResume(a *app) *cobra.Command {
	return shows(defaultGatewayOr(a), &cobra.Command{
		Use: "resume [GATEWAY_ID]", Short: "End the pause after a rollback; the next commit is pushed",
		Long: "End the pause after a rollback. The next new commit is pushed; the one that was rolled back is not pushed again, unless you run keygate repo sync.",
	}, (*client.Client).ResumeRepository, repositoryFields)
}

func repositoryLabel(r *client.Repository) string { return "repository " + withID(r.URL, r.GatewayID) }

func newRepoRemove(a *app) *cobra.Command {
	return destroys(defaultGatewayOr(a), &cobra.Command{Use: "remove [GATEWAY_ID]", Short: "Stop following the repository; routes and revisions stay"},
		destroyer[client.Repository]{"remove", (*client.Client).Repository, lostWithRepository, (*client.Client).DeleteRepository, repositoryLabel, repositoryFields})
}

func lostWithRepository(context.Context, *client.Client, *client.Repository) (lost, error) {
	return lost{records: []string{"its credential and its hook secret"}}, nil
}
