package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"berth/cmd/internal/cli"
	"berth/schema/authority"
)

// rolesReport is the table of permissions and roles as JSON.
type rolesReport struct {
	Format      string          `json:"format"` // berth.roles/v1
	Roles       []string        `json:"roles"`
	Permissions []authority.Row `json:"permissions"`
}

func newRolesReport() rolesReport {
	return rolesReport{"berth.roles/v1", authority.Roles(), authority.Table()}
}

// Text implements cli.Report. Nine columns of words are too wide for a terminal; the
// roles stand above, each family once.
func (r rolesReport) Text(p *cli.Page) error {
	short := map[authority.Cell]string{
		authority.Allow: "allow", authority.Deny: "-", authority.SameProject: "project", authority.Listed: "listed",
	}
	tw := tabwriter.NewWriter(p, 0, 0, 1, ' ', 0)
	families, names := []string{""}, []string{"PERMISSION"}
	last := ""
	for _, role := range r.Roles {
		family, name, _ := strings.Cut(role, "_")
		shown := strings.ToUpper(family)
		if family == last {
			shown = ""
		}
		last = family
		families, names = append(families, shown), append(names, name)
	}
	fmt.Fprintln(tw, strings.Join(families, "\t")+"\t")
	fmt.Fprintln(tw, strings.Join(names, "\t")+"\tallows to")
	for _, row := range r.Permissions {
		cells := []string{string(row.Permission)}
		for _, role := range r.Roles {
			cells = append(cells, short[row.Roles[role]])
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t")+"\t"+row.Doc)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(p, `
A project's role holds in the project, or in all of a tenant whose roles.yaml gives it; a tenant's in
the tenant and its projects; a platform's on platform documents, and in tenants only with the trailer
"Break-Glass: reason", which is audited.
project: a service account, in its own project (a tenant's: on the tenant's shared runtimes), if its scopes name it.
listed:  the same, and at the API only calls that its allowed_endpoints name.
`)
	return err
}
