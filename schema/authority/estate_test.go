package authority_test

import (
	"fmt"
	"strings"

	"berth/schema"
)

// members parses members of a binding: "anna project_admin".
func members(list ...string) (ms []schema.RoleMember) {
	for _, m := range list {
		who, role, _ := strings.Cut(m, " ")
		member := schema.RoleMember{Login: who, Role: role}
		if role == "service_account" {
			member = schema.RoleMember{ServiceAccount: who, Role: role}
		}
		ms = append(ms, member)
	}
	return ms
}

// world is an estate under construction.
type world struct{ *schema.Desired }

// campus has two tenants: physics with the projects lattice and qcd, and biology with
// genomes. It has no role, policy or service account.
func campus() world {
	w := world{&schema.Desired{
		Platform: &schema.Platform{Roles: map[string]*schema.RoleBinding{}, Policies: map[string]*schema.Policy{},
			Apps:     map[string]*schema.App{"notebooks": noScheduler("notebooks"), "models": noScheduler("models")},
			Versions: map[string]map[string]*schema.AppVersion{"batch": {}, "notebooks": {}},
			Nodes:    map[string]*schema.Node{}, SharedRuntimes: map[string]*schema.SharedRuntimeEstate{"common": shared("common")}},
		Tenants: map[string]*schema.TenantEstate{},
	}}
	for tenant, projects := range map[string][]string{"physics": {"lattice", "qcd"}, "biology": {"genomes"}} {
		t := &schema.TenantEstate{Name: tenant, Projects: map[string]*schema.ProjectEstate{},
			Tenant:          &schema.Tenant{Header: head(schema.Key{Kind: schema.KindTenant, Name: tenant})},
			ServiceAccounts: map[string]*schema.ServiceAccount{},
			SharedRuntimes:  map[string]*schema.SharedRuntimeEstate{"cluster": shared("cluster")}}
		for _, project := range projects {
			t.Projects[project] = empty(tenant, project)
		}
		w.Tenants[tenant] = t
	}
	return w
}

func noScheduler(slug string) *schema.App {
	return &schema.App{Header: head(schema.Key{Kind: schema.KindApp, Name: slug}), Spec: schema.AppSpec{Category: "interactive"}}
}

func empty(tenant, project string) *schema.ProjectEstate {
	return &schema.ProjectEstate{Name: project,
		Project:         &schema.Project{Header: head(schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project})},
		Instances:       map[string]*schema.Instance{},
		Entitlements:    map[string]*schema.Entitlement{},
		ServiceAccounts: map[string]*schema.ServiceAccount{},
		Artifacts:       map[string]*schema.Artifact{},
		Operations:      map[string]*schema.MemberOperation{},
	}
}

func shared(name string) *schema.SharedRuntimeEstate {
	return &schema.SharedRuntimeEstate{Name: name, Attachments: map[string]*schema.Attachment{},
		Operations: map[string]*schema.MemberOperation{}}
}

// head returns the header of a valid document of k; member i of a binding is on line
// 10+i.
func head(k schema.Key) schema.Header {
	path, err := k.Path()
	if err != nil {
		panic(err)
	}
	h := schema.Header{Key: k, File: path, Blob: "blob"}
	for i := range 10 {
		h.Fields = append(h.Fields, schema.FieldPos{Path: fmt.Sprintf("spec.members[%d]", i), Line: uint16(10 + i), Column: 5})
	}
	return h
}

// bindingKey returns the key of the role binding of a place: "", "physics" or
// "physics.lattice".
func bindingKey(place string) schema.Key {
	tenant, project, _ := strings.Cut(place, ".")
	k := schema.Key{Kind: schema.KindRoleBinding, Tenant: tenant, Project: project, Name: "roles"}
	if tenant == "" {
		k.Name = "operators"
	}
	return k
}

// bind declares the role binding of a place.
func (w world) bind(place string, ms ...schema.RoleMember) world {
	k := bindingKey(place)
	b := &schema.RoleBinding{Header: head(k), Spec: schema.RoleBindingSpec{Members: ms}}
	w.put(b)
	return w
}

func (w world) put(b *schema.RoleBinding) {
	switch k := b.Key; {
	case k.Tenant == "":
		w.Platform.Roles[k.Name] = b
	case k.Project == "":
		w.Tenants[k.Tenant].Roles = b
	default:
		w.Tenants[k.Tenant].Projects[k.Project].Roles = b
	}
}

func (w world) binding(place string) *schema.RoleBinding {
	switch k := bindingKey(place); {
	case k.Tenant == "":
		return w.Platform.Roles[k.Name]
	case k.Project == "":
		return w.Tenants[k.Tenant].Roles
	default:
		return w.Tenants[k.Tenant].Projects[k.Project].Roles
	}
}

// account declares a service account with every scope and one endpoint.
func (w world) account(place string, scopes ...string) schema.Key {
	k := bindingKey(place)
	k.Kind, k.Name = schema.KindServiceAccount, "ci"
	sa := &schema.ServiceAccount{Header: head(k), Spec: schema.ServiceAccountSpec{
		PublicKeys: []schema.PublicKey{{ID: "a", Key: "ssh-ed25519 AAAA"}}, Scopes: scopes, AllowedEndpoints: []string{endpoint},
	}}
	if k.Project == "" {
		w.Tenants[k.Tenant].ServiceAccounts[k.Name] = sa
	} else {
		w.Tenants[k.Tenant].Projects[k.Project].ServiceAccounts[k.Name] = sa
	}
	return k
}

const endpoint = "POST /api/v1/projects/{project_id}/app-instances"
