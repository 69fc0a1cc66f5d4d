"""rsl_rl's runners on this library's PPO: change the import, keep the training script.

    from sharpwave.compat.rsl_rl.runners import OnPolicyRunner

    runner = OnPolicyRunner(env, agent_cfg.to_dict(), log_dir=log_dir, device="cuda:0")
    runner.learn(num_learning_iterations=1_500, init_at_random_ep_len=True)
    policy = runner.get_inference_policy(device="cuda:0")

Environments are those of rsl_rl: `RslRlVecEnvWrapper` of Isaac Lab, the wrapper of MuJoCo
Playground, and whatever else has their form. Checkpoints of rsl_rl are read, and written.
"""
