package access

import "testing"

// TestAllowUser: an operation on behalf of a user has the rights that the user has at that moment, and those of every client.
func TestAllowUser(t *testing.T) {
	u := func(name string, grants ...grant) *User { return &User{Name: name, Grants: grants} }
	publish := grant{Topic: "dead", Rights: Publish}
	p := &Policy{enforced: true, users: map[string]*User{
		"alice": u("alice", publish), "bob": u("bob", grant{Topic: "dead", Rights: Consume}), "root": {Name: "root", Cluster: AdministerCluster},
	}}
	for name, want := range map[string]bool{"alice": true, "bob": false, "root": true, "deleted": false, BootstrapUser: true} {
		if got := p.AllowUser(name, Publish, "dead"); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	p.users[AnonymousUser] = u(AnonymousUser, publish)
	if !p.AllowUser("bob", Publish, "dead") || p.AllowUser("bob", Publish, "other") {
		t.Error("every client may publish to dead, and to no other topic")
	}
	if !(&Policy{}).AllowUser("deleted", Publish, "dead") {
		t.Error("no rights are enforced")
	}
}
