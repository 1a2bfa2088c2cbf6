package schema

import (
	"context"
	"errors"
)

// ErrIncomplete: an object of a repository is missing or damaged, so that nothing is
// known of what it declares. Test with errors.Is. That a tree or a file was made
// so that nobody can read it is another error.
var ErrIncomplete = errors.New("the repository is incomplete")

// Snapshot is one consistent tree of an estate: a commit's, or a directory's.
// It is cut into parts that cannot disturb each other: "platform", each
// "tenants/<t>", and whatever else stands in the root or directly in tenants/.
type Snapshot interface {
	// Parts lists the parts in order of name. Hash is the content's identity:
	// equal hashes, equal files.
	Parts(ctx context.Context) ([]Part, error)
	// Files lists the files of a part in order of path. An error means that
	// nothing is known of the part, never that it is empty (DESIGN §1, promise 4).
	// It is ErrIncomplete if the repository lacks what it would be read from.
	Files(ctx context.Context, part Part) ([]File, error)
	// Read returns a file's bytes, at most max of them, and whether there is more.
	// The error is as that of Files.
	Read(ctx context.Context, f File, max int) (data []byte, more bool, err error)
}

// Part is a part of a Snapshot.
type Part struct {
	Name string // "platform", "tenants/physics", "README.md"
	Hash string
	Dir  bool
}

// File is one entry of a tree that is not a directory.
type File struct {
	Path string // from the estate's root, slashes
	Mode uint32 // Git's file mode: 0100644 plain, 0100755 executable, 0120000 symlink, 0160000 submodule
	Blob string // Git blob id, hex
	Size int64  // in bytes; 0 where nobody had to ask: a Git tree does not say
}

// Git's file modes as they stand in a tree.
const (
	ModePlain      uint32 = 0o100644
	ModeExecutable uint32 = 0o100755
	ModeSymlink    uint32 = 0o120000
	ModeSubmodule  uint32 = 0o160000
)

// PathChange is one path in which two trees differ. A blob is "" where the path
// is not there.
type PathChange struct {
	Path     string
	From, To string // blobs
}

// Desired is everything one tree declares, valid documents only. Immutable
// after loading; parts that did not change are shared between revisions.
type Desired struct {
	Platform *Platform                // never nil
	Tenants  map[string]*TenantEstate // by tenant name
}

// Platform is what stands under platform/.
type Platform struct {
	Apps     map[string]*App
	Versions map[string]map[string]*AppVersion // app, then version name
	Nodes    map[string]*Node
	Policies map[string]*Policy
	Roles    map[string]*RoleBinding

	Sites           map[string]*Site
	ArtifactSources map[string]*ArtifactSource
	SharedRuntimes  map[string]*SharedRuntimeEstate
	Queues          map[string]*QueueMap
	Hooks           map[string]*HookRule
	Pause           *Pause // nil: Berth works
}

// TenantEstate is what stands under tenants/<t>/.
type TenantEstate struct {
	Name     string
	Tenant   *Tenant      // nil if missing or invalid
	Policy   *Policy      // nil if the tenant has none
	Roles    *RoleBinding // nil if the tenant has none
	Projects map[string]*ProjectEstate

	ServiceAccounts map[string]*ServiceAccount
	ArtifactSources map[string]*ArtifactSource
	SharedRuntimes  map[string]*SharedRuntimeEstate
}

// SharedRuntimeEstate is what stands under shared-runtimes/<r>/.
type SharedRuntimeEstate struct {
	Name        string
	Runtime     *SharedRuntime // nil if missing or invalid
	Attachments map[string]*Attachment
	Operations  map[string]*MemberOperation
}

// ProjectEstate is what stands under tenants/<t>/projects/<p>/.
type ProjectEstate struct {
	Name         string
	Project      *Project     // nil if missing or invalid
	Roles        *RoleBinding // nil if the project has none
	Entitlements map[string]*Entitlement
	Instances    map[string]*Instance

	ServiceAccounts map[string]*ServiceAccount
	Artifacts       map[string]*Artifact
	Contributions   map[string]*Contribution
	Operations      map[string]*MemberOperation
}

// Instance is the instance of key, or nil.
func (d *Desired) Instance(key Key) *Instance {
	if t := d.Tenants[key.Tenant]; t != nil {
		if p := t.Projects[key.Project]; p != nil {
			return p.Instances[key.Name]
		}
	}
	return nil
}

// Version is a version of an app, or nil.
func (d *Desired) Version(app, version string) *AppVersion {
	return d.Platform.Versions[app][version]
}

// SharedRuntime is what stands under a shared runtime's directory, or nil. The
// tenant is empty for one of the platform's.
func (d *Desired) SharedRuntime(tenant, name string) *SharedRuntimeEstate {
	if tenant == "" {
		return d.Platform.SharedRuntimes[name]
	}
	if t := d.Tenants[tenant]; t != nil {
		return t.SharedRuntimes[name]
	}
	return nil
}

// Header is the header of the document of key, or nil if there is no valid one.
func (d *Desired) Header(key Key) *Header {
	if h := d.find(key); h != nil && h.Key == key {
		return h
	}
	return nil
}

// AppOf is the slug of the app that the document of key is about; "" where it is
// about none, or there is no valid one.
func (d *Desired) AppOf(key Key) string {
	switch key.Kind {
	case KindApp, KindEntitlement:
		return key.Name
	case KindAppVersion:
		return key.Parent
	case KindAttachment:
		key.Kind, key.Name = KindSharedRuntime, key.Parent
		fallthrough
	case KindSharedRuntime:
		if s := d.SharedRuntime(key.Tenant, key.Name); s != nil && s.Runtime != nil {
			return s.Runtime.Spec.App
		}
	case KindInstance:
		if i := d.Instance(key); i != nil {
			return i.Spec.App
		}
	case KindArtifact:
		if t := d.Tenants[key.Tenant]; t != nil && t.Projects[key.Project] != nil && t.Projects[key.Project].Artifacts[key.Name] != nil {
			return t.Projects[key.Project].Artifacts[key.Name].Spec.App
		}
	}
	return ""
}

func (d *Desired) find(key Key) *Header {
	switch {
	case key.Kind == KindTenant:
		if t := d.Tenants[key.Name]; t != nil {
			return head(t.Tenant)
		}
		return nil
	case key.Kind == KindAttachment || key.Kind == KindMemberOperation && key.Parent != "":
		s := d.SharedRuntime(key.Tenant, key.Parent)
		switch {
		case s == nil:
			return nil
		case key.Kind == KindAttachment:
			return head(s.Attachments[key.Name])
		}
		return head(s.Operations[key.Name])
	case key.Kind == KindSharedRuntime:
		if s := d.SharedRuntime(key.Tenant, key.Name); s != nil {
			return head(s.Runtime)
		}
		return nil
	case key.Tenant == "":
		return d.Platform.header(key)
	}
	t := d.Tenants[key.Tenant]
	switch {
	case t == nil:
		return nil
	case key.Kind == KindProject:
		if p := t.Projects[key.Name]; p != nil {
			return head(p.Project)
		}
		return nil
	case key.Project == "":
		return t.header(key)
	case t.Projects[key.Project] != nil:
		return t.Projects[key.Project].header(key)
	}
	return nil
}

func (p *Platform) header(key Key) *Header {
	switch key.Kind {
	case KindApp:
		return head(p.Apps[key.Name])
	case KindAppVersion:
		return head(p.Versions[key.Parent][key.Name])
	case KindNode:
		return head(p.Nodes[key.Name])
	case KindPolicy:
		return head(p.Policies[key.Name])
	case KindRoleBinding:
		return head(p.Roles[key.Name])
	case KindSite:
		return head(p.Sites[key.Name])
	case KindArtifactSource:
		return head(p.ArtifactSources[key.Name])
	case KindQueueMap:
		return head(p.Queues[key.Name])
	case KindHookRule:
		return head(p.Hooks[key.Name])
	case KindPause:
		return head(p.Pause)
	}
	return nil
}

func (t *TenantEstate) header(key Key) *Header {
	switch key.Kind {
	case KindPolicy:
		return head(t.Policy)
	case KindRoleBinding:
		return head(t.Roles)
	case KindServiceAccount:
		return head(t.ServiceAccounts[key.Name])
	case KindArtifactSource:
		return head(t.ArtifactSources[key.Name])
	}
	return nil
}

func (p *ProjectEstate) header(key Key) *Header {
	switch key.Kind {
	case KindRoleBinding:
		return head(p.Roles)
	case KindEntitlement:
		return head(p.Entitlements[key.Name])
	case KindInstance:
		return head(p.Instances[key.Name])
	case KindServiceAccount:
		return head(p.ServiceAccounts[key.Name])
	case KindArtifact:
		return head(p.Artifacts[key.Name])
	case KindContribution:
		return head(p.Contributions[key.Name])
	case KindMemberOperation:
		return head(p.Operations[key.Name])
	}
	return nil
}

// head is the header of a document that may be missing.
func head[T any, D interface {
	*T
	Head() *Header
}](doc D) *Header {
	if doc == nil {
		return nil
	}
	return doc.Head()
}
