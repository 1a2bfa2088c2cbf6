package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"berth/schema/authority"
)

// rolesReport is the table of permissions and roles as JSON.
type rolesReport struct {
	Format      string          `json:"format"` // berth.roles/v1
	Roles       []string        `json:"roles"`
	Permissions []authority.Row `json:"permissions"`
}

// printRoles prints the permissions of each role, as text or json.
func printRoles(w io.Writer, form string) error {
	switch form {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rolesReport{"berth.roles/v1", authority.Roles(), authority.Table()})
	case "text":
		return rolesText(w)
	}
	return fmt.Errorf("unknown output form %q: choose text or json", form)
}

func rolesText(w io.Writer) error {
	// Nine columns of words are too wide for a terminal; the roles stand above,
	// each family once.
	short := map[authority.Cell]string{
		authority.Allow: "allow", authority.Deny: "-", authority.SameProject: "project", authority.Listed: "listed",
	}
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	families, names := []string{""}, []string{"PERMISSION"}
	last := ""
	for _, role := range authority.Roles() {
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
	for _, row := range authority.Table() {
		cells := []string{string(row.Permission)}
		for _, role := range authority.Roles() {
			cells = append(cells, short[row.Roles[role]])
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t")+"\t"+row.Doc)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, `
A project's role holds in the project, or in all of a tenant whose roles.yaml gives it; a tenant's in
the tenant and its projects; a platform's on platform documents, and in tenants only with the trailer
"Break-Glass: reason", which is audited.
project: a service account, in its own project (a tenant's: on the tenant's shared runtimes), if its scopes name it.
listed:  the same, and at the API only calls that its allowed_endpoints name.
`)
	return err
}
