package api

import (
	"cmp"
	"regexp"

	"berth/reconciler/plan"
	"berth/schema"
)

// privacy decides which texts a caller may read.
type privacy struct {
	isPlatform bool // the caller is a platform user
	tenants    map[string]*schema.TenantEstate
}

// conditions returns the conditions of a resource, with the messages that the caller may read.
func (p privacy) conditions(key schema.Key, cs []plan.Condition) []plan.Condition {
	out := append([]plan.Condition{}, cs...)
	for i := range out {
		out[i].Message = p.visible(key, out[i].Message)
	}
	return out
}

// visible returns a message about a resource if the caller may read it, else "". A
// message about a platform resource is for platform users only, because its cause may
// be in any tenant; a message that names another tenant's document is too.
func (p privacy) visible(key schema.Key, message string) string {
	owner := key.Tenant
	if key.Kind == schema.KindTenant {
		owner = key.Name
	}
	if !p.isPlatform && (owner == "" || p.namesOther(owner, message)) {
		return ""
	}
	return message
}

// kinds finds a tenant's name in a message by a path, or by a kind and name; alone
// finds words that may be a tenant's name.
var (
	kinds = regexp.MustCompile(`\btenants/([-a-z0-9]+)|\bTenant ([-a-z0-9]+)|\bplatform/admissions/([-a-z0-9]+)|` +
		`\b(?:App|AppAdmission) ([-a-z0-9]+)/|\bAppVersion ([-a-z0-9]+)/[-a-z0-9]+/|` +
		`\b(?:Project|Policy|Entitlement|RoleBinding|Instance|ArtifactSource|Artifact|ServiceAccount|` +
		`SharedRuntime|Attachment|Contribution|MemberOperation) ([-a-z0-9]+)[./]`)
	alone = regexp.MustCompile(`(?:^|[^-a-z0-9./])([-a-z0-9]+)[./][a-z0-9]`)
)

// namesOther says whether a message names a document of a tenant other than owner.
func (p privacy) namesOther(owner, message string) bool {
	for _, m := range kinds.FindAllStringSubmatch(message, -1) {
		if cmp.Or(m[1:]...) != owner {
			return true
		}
	}
	for _, m := range alone.FindAllStringSubmatch(message, -1) {
		if m[1] != owner && p.tenants[m[1]] != nil {
			return true
		}
	}
	return false
}
