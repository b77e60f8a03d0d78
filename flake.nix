{
  description = "A knowledge base that agents run as a coprocess";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  # The wheels of PyPI, in an environment of its own that is made at the first start: some of the
  # libraries are not in nixpkgs.
  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ];
      each = nixpkgs.lib.genAttrs systems;
    in {
      packages = each (system:
        let pkgs = nixpkgs.legacyPackages.${system};
        in {
          default = pkgs.writeShellApplication {
            name = "kbproc";
            runtimeInputs = [ pkgs.uv pkgs.python312 ];
            text = ''exec uvx --python ${pkgs.python312}/bin/python3 --from ${self} kbproc "$@"'';
          };
        });
    };
}
