// Package provider is the provider of Keygate for OpenTofu and Terraform. Its resources are rows of a table, which is
// generated from the API document, so that their attributes are the API's.
package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/keygate/keygate/client"
)

// The environment variables for attributes of the provider that are not set.
const (
	urlVariable = "KEYGATE_URL"
	keyVariable = "KEYGATE_API_KEY"
)

type keygate struct{ version string }

// New returns a function that returns the provider. Its requests name the version.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &keygate{version} }
}

// Metadata implements provider.Provider.
func (p *keygate) Metadata(_ context.Context, _ provider.MetadataRequest, res *provider.MetadataResponse) {
	res.TypeName, res.Version = "keygate", p.version
}

// Schema implements provider.Provider.
func (p *keygate) Schema(_ context.Context, _ provider.SchemaRequest, res *provider.SchemaResponse) {
	res.Schema = schema.Schema{
		Description: "Manages Keygate: gateways with their upstreams and routes, keys, plans, owners, webhooks, issuers and accounts.",
		Attributes: map[string]schema.Attribute{
			"url": schema.StringAttribute{
				Optional:    true,
				Description: "Address of the management API, as in https://keygate.example.com:8081. Default: the environment variable " + urlVariable + ".",
			},
			"api_key": schema.StringAttribute{
				Optional: true, Sensitive: true,
				Description: "Account-level key with the scope admin, or smaller scopes for what is managed. Default: the environment variable " + keyVariable + ", which keeps it out of files.",
			},
		},
	}
}

// Configure implements provider.Provider. It makes the client that the resources share.
func (p *keygate) Configure(ctx context.Context, req provider.ConfigureRequest, res *provider.ConfigureResponse) {
	setting := func(attribute, variable string) string {
		var value types.String
		res.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attribute), &value)...)
		switch {
		case value.IsUnknown():
			res.Diagnostics.AddAttributeError(path.Root(attribute), "Not known yet",
				"The value of "+attribute+" is known only after what it depends on has been applied. Apply that first, with -target, or set "+variable+".")
		case value.ValueString() == "" && os.Getenv(variable) == "":
			res.Diagnostics.AddAttributeError(path.Root(attribute), "Missing",
				"Set the attribute "+attribute+" of the provider, or the environment variable "+variable+".")
		case value.ValueString() == "":
			return os.Getenv(variable)
		}
		return value.ValueString()
	}
	url, key := setting("url", urlVariable), setting("api_key", keyVariable)
	if res.Diagnostics.HasError() {
		return
	}
	c, err := client.New(client.Config{URL: url, Key: key, UserAgent: "keygate-terraform/" + p.version})
	if err != nil {
		res.Diagnostics.AddError("The provider cannot be configured", err.Error())
		return
	}
	res.ResourceData = c
}

// DataSources implements provider.Provider.
func (p *keygate) DataSources(context.Context) []func() datasource.DataSource { return nil }

// Resources implements provider.Provider.
func (p *keygate) Resources(context.Context) []func() resource.Resource {
	var made []func() resource.Resource
	for _, k := range kinds() {
		made = append(made, func() resource.Resource { return &record{kind: k} })
	}
	return made
}
