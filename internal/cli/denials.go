package cli

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// denialText says what a denial refuses.
func denialText(d *client.Denial) string {
	switch {
	case d.Subject != nil:
		return "subject " + *d.Subject
	case d.Jti != nil:
		return "token " + *d.Jti
	default:
		return "issued before " + terminal.Moment(d.IssuedBefore)
	}
}

func denialFields(d *client.Denial) []terminal.Field {
	return append([]terminal.Field{
		{"DENIAL ID", d.DenialID}, {"ISSUER ID", d.IssuerID}, {"DENIES", denialText(d)}, {"UNTIL", terminal.Moment(&d.Until)}, {"CREATED", terminal.Moment(&d.CreatedAt)},
	}, filled(terminal.Field{"REASON", str(d.Reason)})...)
}

func newIssuersDeny(a *app) *cobra.Command {
	var subject, jti, before, until, reason string
	c := &cobra.Command{
		Use: "deny ISSUER_ID {--subject SUBJECT | --jti ID | --issued-before TIME}", Short: "Refuse tokens of an issuer before they expire",
		Long: `Refuse tokens of an issuer before they expire: those of a subject, one token by its identifier,
or all that were issued before some time. When the command ends, every node refuses them, and
streams are cut. Without --until, this ends when every token of now has expired.

It does not keep the issuer from issuing other tokens: bar the user there as well.`,
		Example: "  keygate issuers deny login --subject user-42 --reason 'laptop stolen'",
		PreRunE: func(c *cobra.Command, _ []string) error {
			if err := noneEmpty(c); err != nil {
				return err
			}
			n := 0
			for _, flag := range []string{"subject", "jti", "issued-before"} {
				if c.Flags().Changed(flag) {
					n++
				}
			}
			if n != 1 {
				return usagef("give one of --subject, --jti and --issued-before")
			}
			return nil
		},
	}
	c.Flags().StringVar(&subject, "subject", "", "`subject` (sub) whose tokens are refused")
	c.Flags().StringVar(&jti, "jti", "", "`identifier` (jti) of the token that is refused")
	c.Flags().StringVar(&before, "issued-before", "", "`time` before which refused tokens were issued, such as 2026-03-01T12:00:00Z")
	c.Flags().StringVar(&until, "until", "", "`time` at which the denial ends (default: when every token of now has expired)")
	c.Flags().StringVar(&reason, "reason", "", "why, as a `text` for people")
	return shows(oneIssuer(a), c, func(api *client.Client, ctx context.Context, id string) (*client.Denial, error) {
		return api.CreateDenial(ctx, id, client.CreateDenialRequest{
			Subject: given(subject), Jti: given(jti), IssuedBefore: given(before), Until: given(until), Reason: given(reason),
		})
	}, denialFields)
}

func newIssuersDenials(a *app) *cobra.Command {
	filter, issuer := &client.DenialFilter{}, ""
	c := &cobra.Command{Use: "denials ISSUER_ID", Short: "List the denials of an issuer that have not ended, newest first", Args: atMost(1)}
	c.Flags().StringVar(&issuer, "issuer-id", "", "`id` or name of the issuer"+alsoArgument)
	c.Flags().StringVar(&filter.Subject, "subject", "", "only denials of this `subject`")
	c.Flags().StringVar(&filter.JTI, "jti", "", "only denials of the token with this `identifier`")
	return lists(a, c, lister[client.Denial]{
		options: &filter.ListOptions,
		check: func(c *cobra.Command, args []string) (err error) {
			if err := noneEmpty(c); err != nil {
				return err
			}
			issuer, err = idOf("issuer-id", issuer, args)
			return err
		},
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Denial, error], error) {
			id, err := a.issuerID(api, issuer)
			return api.Denials(ctx, id, *filter), err
		},
		columns: []terminal.Column{{Name: "DENIAL ID", Rank: 2}, {Name: "DENIES", Flex: true}, {Name: "UNTIL"}, {Name: "REASON", Rank: 1, Flex: true}, {Name: "CREATED", Rank: 3}},
		row: func(d *client.Denial) []string {
			return []string{d.DenialID, denialText(d), a.When(&d.Until), str(d.Reason), a.When(&d.CreatedAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "denials", "Deny tokens: keygate issuers deny ISSUER_ID --subject SUBJECT")
		},
	})
}

func newIssuersLift(a *app) *cobra.Command {
	issuer, denial := "", ""
	c := &cobra.Command{
		Use: "lift ISSUER_ID DENIAL_ID", Short: "Lift a denial: the tokens are valid again until they expire",
		Example: "  keygate issuers lift login den_01jz8y5c3te9b8r2m6q4v7x0aa", Args: atMost(2),
	}
	c.Flags().StringVar(&issuer, "issuer-id", "", "`id` or name of the issuer"+alsoArgument)
	c.Flags().StringVar(&denial, "denial-id", "", "`id` of the denial"+alsoArgument)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		for _, one := range []struct {
			flag string
			to   *string
		}{{"issuer-id", &issuer}, {"denial-id", &denial}} {
			given := args[:min(1, len(args))]
			if c.Flags().Changed(one.flag) {
				given = nil
			} else {
				args = args[len(given):]
			}
			if *one.to, err = idOf(one.flag, *one.to, given); err != nil {
				return err
			}
		}
		if len(args) > 0 {
			return usagef("%s does not take the argument %q: see its --help", c.CommandPath(), args[0])
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		issuerID, err := a.issuerID(api, issuer)
		if err != nil {
			return err
		}
		d, err := api.DeleteDenial(c.Context(), issuerID, denial)
		if err != nil {
			return err
		}
		return show(a, d, denialFields)
	}
	return c
}
