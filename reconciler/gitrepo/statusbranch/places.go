package statusbranch

import "berth/reconciler/gitrepo/object"

// statusDirs returns the directories of berth/status with statuses.
func statusDirs() []string { return []string{"nodes", "platform", object.TenantsDir} }
