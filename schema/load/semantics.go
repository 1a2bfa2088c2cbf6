package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"berth/schema"
)

// semantics checks the rules of a document that a definition cannot express, and fills
// in values from a backend's definitions.
func (r *documentParser) semantics(spec schema.Document, t *tree) []problem {
	return slices.Concat(suspendRules(spec.Head()), shownNameRules(t), r.rules(spec, t))
}

// shownNameRules refuse a display name without visible characters, such as unusual
// blanks.
func shownNameRules(t *tree) []problem {
	name, ok := t.value["spec"].(map[string]any)["display_name"].(string)
	if !ok || strings.ContainsFunc(name, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }) {
		return nil
	}
	return []problem{{path: "spec.display_name", code: "schema.rule", message: "shows nothing: write a name with at least one letter or digit"}}
}

// suspendRules refuse suspend: true for documents without an effect to suspend, so that
// nobody relies on it.
func suspendRules(h *schema.Header) []problem {
	instead := h.Key.Kind.Info().InsteadOfSuspend
	if !h.Suspend || instead == "" {
		return nil
	}
	return []problem{{path: "suspend", code: "schema.rule", message: fmt.Sprintf("suspends nothing: Berth does nothing for a document of kind %s that could wait; %s", h.Key.Kind, instead), atKey: true}}
}

func (r *documentParser) rules(spec any, t *tree) []problem {
	switch d := spec.(type) {
	case *schema.AppVersion:
		ps := append(manifestRules(&d.Spec.Manifest), upgradeRules(d)...)
		return append(ps, r.parameters(d, t)...)
	case *schema.Node:
		return nodeRules(&d.Spec)
	case *schema.Policy:
		return policyRules(d)
	case *schema.Entitlement:
		return overlayRules("spec.policy_overrides", &d.Spec.PolicyOverrides)
	case *schema.RoleBinding:
		return bindingRules(d)
	case *schema.Instance:
		return instanceRules(d, t)
	case *schema.SharedRuntime:
		return sharedRuntimeRules(d, t)
	case *schema.Attachment:
		return attachmentRules(d, t)
	case *schema.Contribution:
		return repeated("spec.nodes", d.Spec.Nodes)
	case *schema.ArtifactSource:
		return sourceRules(d)
	case *schema.Artifact:
		return artifactRules(&d.Spec)
	case *schema.ServiceAccount:
		return accountRules(&d.Spec)
	case *schema.MemberOperation:
		return operationRules(d)
	case *schema.Site:
		return repeated("spec.regions", d.Spec.Regions)
	case *schema.QueueMap:
		return queueRules(&d.Spec)
	case *schema.HookRule:
		return hookRules(&d.Spec)
	}
	return nil
}

// repeated returns the items that a list has twice.
func repeated(path string, list []string) (ps []problem) {
	seen := make(map[string]bool, len(list))
	for i, s := range list {
		if seen[s] {
			ps = append(ps, problem{path: Item(path, i), code: "schema.rule", message: fmt.Sprintf("%q stands in the list already", s)})
		}
		seen[s] = true
	}
	return ps
}

func upgradeRules(d *schema.AppVersion) []problem {
	const path = "spec.manifest.upgrade_from"
	ps := repeated(path, d.Spec.Manifest.UpgradeFrom)
	if i := slices.Index(d.Spec.Manifest.UpgradeFrom, d.Key.Name); i >= 0 {
		ps = append(ps, problem{path: Item(path, i), code: "schema.rule", message: "is this version itself: take it away"})
	}
	return ps
}

func manifestRules(m *schema.Manifest) (ps []problem) {
	control := ""
	for _, name := range slices.Sorted(maps.Keys(m.Roles)) {
		role, path := m.Roles[name], "spec.manifest.roles."+name
		if role.Min > role.Max {
			ps = append(ps, problem{path: path + ".min", code: "schema.rule", message: fmt.Sprintf("is %d, more than max, which is %d", role.Min, role.Max)})
		}
		if !role.ControlPlane {
			continue
		}
		if control != "" {
			ps = append(ps, problem{path: path + ".control_plane", code: "schema.rule", message: fmt.Sprintf("the role %s is the control plane already: a manifest has one", control)})
			continue
		}
		control = name
		if role.Min != 1 || role.Max != 1 {
			ps = append(ps, problem{path: path, code: "schema.rule", message: "the control plane is always one member: set min and max to 1"})
		}
	}
	if control == "" {
		ps = append(ps, problem{path: "spec.manifest.roles", code: "schema.rule", message: "no role is the control plane: set control_plane: true on one"})
	}
	return ps
}

// parameters checks a version's parameters against its backend and fills the
// defaults. A backend that is not built in is allowed here: its versions may
// be in the catalog before Berth can run them.
func (r *documentParser) parameters(d *schema.AppVersion, t *tree) []problem {
	def := parametersDef(d.Spec.RuntimeBackend)
	if _, ok := r.judge.defs[def]; !ok {
		return nil
	}
	const path = "spec.manifest.parameters"
	value := map[string]any{}
	manifest := t.value["spec"].(map[string]any)["manifest"].(map[string]any)
	if given, ok := manifest["parameters"].(map[string]any); ok {
		value = given
	}
	out, ps := r.judge.judge(def, value)
	for i := range ps {
		ps[i].path = join(path, ps[i].path)
	}
	if len(ps) > 0 {
		return ps
	}
	raw, err := schema.CanonicalJSON(out)
	if err != nil {
		return []problem{{path: path, code: "schema.value", message: err.Error()}}
	}
	d.Spec.Manifest.Parameters = raw
	return nil
}

func join(prefix, path string) string {
	switch {
	case path == "":
		return prefix
	case path[0] == '[':
		return prefix + path
	}
	return prefix + "." + path
}

var deviceRange = regexp.MustCompile(`^(.*)\[(\d+)-(\d+)\]$`)

// devices lists the device files of a GPU's devices field.
func devices(spec string) []string {
	m := deviceRange.FindStringSubmatch(spec)
	if m == nil {
		return []string{spec}
	}
	low, _ := strconv.Atoi(m[2])
	high, _ := strconv.Atoi(m[3])
	var all []string
	for i := low; i <= high; i++ {
		all = append(all, m[1]+strconv.Itoa(i))
	}
	return all
}

func nodeRules(n *schema.NodeSpec) (ps []problem) {
	seen := map[string]string{}
	for i, g := range n.Capacity.GPUs {
		path := Item("spec.capacity.gpus", i) + ".devices"
		all := devices(g.Devices)
		if len(all) != g.Count {
			ps = append(ps, problem{path: path, code: "schema.rule", message: fmt.Sprintf("%s names %d device files, but count is %d", short(g.Devices), len(all), g.Count)})
			continue
		}
		for _, dev := range all {
			if other, ok := seen[dev]; ok {
				ps = append(ps, problem{path: path, code: "conflict.device", message: fmt.Sprintf("%s is named by %s already", dev, other)})
				break
			}
			seen[dev] = path
		}
	}
	return append(ps, repeated("spec.roles", n.Roles)...)
}

func policyRules(p *schema.Policy) []problem {
	ps := append(overlayRules("spec", &p.Spec.Overlay), repeated("spec.hard_deny.apps", p.Spec.HardDeny.Apps)...)
	switch n := p.Spec.Noncompliant; {
	case n.Action == schema.NoncompliantStop && n.GraceUntil == "":
		ps = append(ps, problem{path: "spec.noncompliant", code: "schema.rule", message: "stops instances without a warning: say the day in grace_until"})
	case n.Action == schema.NoncompliantHold && n.GraceUntil != "":
		ps = append(ps, problem{path: "spec.noncompliant.grace_until", code: "schema.rule", message: "is of no use with hold, which has no end: take it away, or make action stop", atKey: true})
	case n.GraceUntil != "":
		if _, err := time.Parse(time.DateOnly, n.GraceUntil); err != nil {
			ps = append(ps, problem{path: "spec.noncompliant.grace_until", code: "schema.rule", message: fmt.Sprintf("is %s, which no calendar has", n.GraceUntil)})
		}
	}
	return ps
}

// maxAllowed limits the lists of an overlay: every instance is compared with every item.
const maxAllowed = 256

func overlayRules(path string, o *schema.Overlay) (ps []problem) {
	for _, l := range []struct {
		key  string
		list []string
	}{
		{"allowed_regions", o.AllowedRegions}, {"allowed_skus", o.AllowedSKUs}, {"artifact_source_allowlist", o.ArtifactSourceAllowlist},
		{"allowed_operating_modes", o.AllowedOperatingModes}, {"allowed_control_plane_scopes", o.AllowedControlPlaneScopes},
	} {
		if n := len(l.list); n > maxAllowed {
			ps = append(ps, problem{path: path + "." + l.key, code: "schema.rule", message: fmt.Sprintf("has %d items: at most %d are read", n, maxAllowed)})
		}
		ps = append(ps, repeated(path+"."+l.key, l.list)...)
	}
	return ps
}

// roleAllowed reports whether a role may be given at a place: a project cannot make a
// tenant's owner.
func roleAllowed(role string, key schema.Key) bool {
	switch role {
	case "platform_superadmin", "platform_ops":
		return key.Tenant == ""
	case "tenant_owner", "tenant_admin":
		return key.Tenant != "" && key.Project == ""
	default: // project roles apply in one project, or in all of a tenant
		return key.Tenant != ""
	}
}

func bindingRules(b *schema.RoleBinding) (ps []problem) {
	type grant struct{ login, role string }
	seen := map[grant]bool{}
	uids, names, logins := map[string]int{}, map[int]string{}, map[string]string{}
	for i, m := range b.Spec.Members {
		path := Item("spec.members", i)
		if !roleAllowed(m.Role, b.Key) {
			where := "at the platform"
			if b.Key.Project != "" {
				where = "in a project"
			} else if b.Key.Tenant != "" {
				where = "in a tenant"
			}
			ps = append(ps, problem{path: path + ".role", code: "schema.rule", message: fmt.Sprintf("the role %s is not given %s", m.Role, where)})
		}
		switch {
		case m.Login == "" && m.ServiceAccount == "":
			ps = append(ps, problem{path: path, code: "schema.rule", message: "whose role is it? Add login or service_account"})
			continue
		case m.Login != "" && m.ServiceAccount != "":
			ps = append(ps, problem{path: path + ".service_account", code: "schema.rule", message: "a member is a person or a service account: keep one of login and service_account", atKey: true})
		case (m.ServiceAccount != "") != (m.Role == "service_account"):
			ps = append(ps, problem{path: path + ".role", code: "schema.rule", message: "service_account is the role of service accounts, and their only one"})
		case m.ServiceAccount != "" && b.Key.Tenant == "":
			ps = append(ps, problem{path: path + ".service_account", code: "schema.rule", message: "the platform has no service accounts: give the role where the account is"})
		}
		if m.ServiceAccount != "" && (m.UnixUser != nil || len(m.SigningKeys) > 0) {
			ps = append(ps, problem{path: path, code: "schema.rule", message: "unix_user and signing_keys are a person's: a service account's keys are in its own document"})
		}
		g := grant{m.Login + " " + m.ServiceAccount, m.Role}
		if seen[g] {
			ps = append(ps, problem{path: path + ".login", code: "schema.rule", message: fmt.Sprintf("%s has the role %s here already", cmp.Or(m.Login, m.ServiceAccount), m.Role)})
		}
		seen[g] = true
		if u := m.UnixUser; u != nil {
			if uid, ok := uids[u.Name]; ok && uid != u.UID {
				ps = append(ps, problem{path: path + ".unix_user.uid", code: "conflict.unix-user", message: fmt.Sprintf("the Unix user %s has the uid %d above: %s", u.Name, uid, OneUID)})
			} else if name, ok := names[u.UID]; ok && name != u.Name {
				ps = append(ps, problem{path: path + ".unix_user.name", code: "conflict.unix-user", message: fmt.Sprintf("the uid %d is %s's above: %s", u.UID, name, OneUID)})
			} else if login, ok := logins[u.Name]; ok && !strings.EqualFold(login, m.Login) {
				ps = append(ps, problem{path: path + ".login", code: "conflict.unix-user", message: fmt.Sprintf("the Unix user %s is %s's above: %s", u.Name, login, OneLogin)})
			}
			logins[u.Name] = m.Login
			uids[u.Name], names[u.UID] = u.UID, u.Name
		}
	}
	return ps
}

func instanceRules(d *schema.Instance, t *tree) []problem {
	raw, ps := open(t, "config")
	d.Spec.Config = raw
	ps = append(ps, repeated("spec.regions", d.Spec.Regions)...)
	for _, own := range []string{"roles", "config"} {
		if _, ok := t.at["spec."+own]; ok && d.Spec.SharedRuntime != "" {
			ps = append(ps, problem{path: "spec." + own, code: "schema.rule", message: "is the shared runtime's to say: take it away", atKey: true})
		}
	}
	given, shared := d.Spec.OperatingMode, d.Spec.SharedRuntime != ""
	d.Spec.OperatingMode = modeOf(d.Spec.ControlPlaneScope)
	switch {
	case shared && d.Spec.ControlPlaneScope == "project":
		ps = append(ps, problem{path: "spec.shared_runtime", code: "schema.rule", message: "the instance has a control plane of its own, as control_plane_scope is project: set that to tenant or platform, or take this away", atKey: true})
	case !shared && d.Spec.ControlPlaneScope != "project":
		ps = append(ps, problem{path: "spec.control_plane_scope", code: "schema.rule", message: fmt.Sprintf("is %s: name the shared runtime that carries the instance in shared_runtime", d.Spec.ControlPlaneScope)})
	case given != "" && given != d.Spec.OperatingMode:
		ps = append(ps, problem{path: "spec.operating_mode", code: "schema.rule", message: fmt.Sprintf("is %s, but %s is always %s: write that, or take it away", given, carrier(&d.Spec), d.Spec.OperatingMode)})
	}
	return append(ps, drainRules(d.Spec.OnJobs)...)
}

// modeOf returns the operating mode for a scope. There are three product modes and no
// other pairs: project-scoped and tenant-owned shared, which are tenant_dedicated, and
// platform-managed shared (requirement B5).
func modeOf(scope string) string {
	if scope == "platform" {
		return "platform_managed"
	}
	return "tenant_dedicated"
}

// carrier describes the owner of an instance's operating mode, for messages.
func carrier(s *schema.InstanceSpec) string {
	if s.SharedRuntime == "" {
		return "an instance with a control plane of its own"
	}
	return fmt.Sprintf("the %s's shared runtime %s, which carries the instance,", s.ControlPlaneScope, s.SharedRuntime)
}

func drainRules(j *schema.OnJobs) []problem {
	if j != nil && j.Wait && j.CancelAfterSeconds > 0 {
		return []problem{{path: "spec.on_jobs", code: "schema.rule", message: "waits without end and cancels after a while: keep one of wait and cancel_after_seconds"}}
	}
	return nil
}

// open returns a field of the spec that the core's definitions leave open, as canonical
// JSON; nil if it is missing.
func open(t *tree, field string) (json.RawMessage, []problem) {
	value, ok := t.value["spec"].(map[string]any)[field]
	if !ok {
		return nil, nil
	}
	raw, err := canonical(value)
	if err != nil {
		return nil, []problem{{path: "spec." + field, code: "schema.value", message: err.Error()}}
	}
	return raw, nil
}

// Limits of Unix users.
const (
	OneUID   = "one name has one uid everywhere"
	OneLogin = "one Unix user is one login everywhere"
)
