package cli

import (
	"context"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newCertificates(a *app) *cobra.Command {
	return newGroup("certificates", "See and renew the certificates that Keygate gets for hostnames",
		newCertificatesList(a), newCertificatesGet(a), newCertificatesRenew(a))
}

// certificateID returns the identifier of the certificate with an identifier or hostname.
func (a *app) certificateID(api *client.Client, ref string) (string, error) {
	return named("certificate", ref, "keygate certificates list shows the hostnames", api.Certificates(a.Context, client.CertificateFilter{Query: ref}),
		func(c *client.Certificate) bool { return strings.EqualFold(c.Hostname, ref) }, func(c *client.Certificate) match { return match{c.CertificateID, []string{c.Hostname}} })
}

func oneCertificate(a *app) *one {
	return &one{app: a, flag: "certificate-id", usage: "`id` or hostname of the certificate" + alsoArgument, find: a.certificateID}
}

func certificateFields(c *client.Certificate) []terminal.Field {
	fields := []terminal.Field{
		{"CERTIFICATE ID", c.CertificateID}, {"HOSTNAME", c.Hostname}, {"STATE", string(c.State)}, {"GATEWAY ID", c.GatewayID},
		{"NOT BEFORE", terminal.Moment(c.NotBefore)}, {"NOT AFTER", terminal.Moment(c.NotAfter)}, {"RENEWAL", terminal.Moment(c.RenewAt)},
		{"NEXT ATTEMPT", terminal.Moment(&c.NextAttemptAt)},
	}
	fields = append(fields, filled(terminal.Field{"LAST ERROR", str(c.LastError)})...)
	return append(fields, terminal.Field{"CREATED", terminal.Moment(&c.CreatedAt)})
}

func newCertificatesList(a *app) *cobra.Command {
	filter := &client.CertificateFilter{}
	c := &cobra.Command{Use: "list", Short: "List certificates, newest first", Args: noArgs}
	c.Flags().StringVarP(&filter.Query, "query", "q", "", "only certificates whose hostname contains this `text`")
	return lists(a, c, lister[client.Certificate]{
		options: &filter.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Certificate, error], error) {
			return api.Certificates(ctx, *filter), nil
		},
		columns: []terminal.Column{
			{Name: "CERTIFICATE ID", Rank: 2}, {Name: "HOSTNAME", Flex: true}, {Name: "STATE", State: true}, {Name: "NOT AFTER"}, {Name: "RENEWAL", Rank: 1},
			{Name: "LAST ERROR", Rank: 1, Flex: true},
		},
		row: func(c *client.Certificate) []string {
			return []string{c.CertificateID, c.Hostname, string(c.State), a.When(c.NotAfter), a.When(c.RenewAt), str(c.LastError)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "certificates", "Turn them on for a gateway with a hostname: keygate gateways update GATEWAY_ID --acme")
		},
	})
}

func newCertificatesGet(a *app) *cobra.Command {
	return shows(oneCertificate(a), &cobra.Command{Use: "get CERTIFICATE_ID", Short: "Show a certificate"}, (*client.Client).Certificate, certificateFields)
}

func newCertificatesRenew(a *app) *cobra.Command {
	return shows(oneCertificate(a), &cobra.Command{
		Use: "renew CERTIFICATE_ID", Short: "Begin the next attempt to get a certificate now",
		Long: `Begin the next attempt to get a certificate within some seconds, whether it is the first one, a
renewal, or one that waits because others have failed. The present certificate is served until
there is a new one. "keygate certificates get" shows what came of it.`,
		Example: "  keygate certificates renew api.example.com",
	}, func(api *client.Client, ctx context.Context, id string) (*client.Certificate, error) {
		return api.RenewCertificate(ctx, id)
	}, certificateFields)
}
